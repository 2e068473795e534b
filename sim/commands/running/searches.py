"""Searches for the best settings or the cheapest deployments: runs them, prints what they found."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from shlex import quote

from sim.commands.output import print_line, print_table
from sim.commands.running.sweep_points import prepare_folder, searched_points
from sim.core.messages import say
from sim.families import family_named
from sim.family import Family
from sim.family.launch_command import LaunchCommand
from sim.latency.config import parallelism
from sim.report.progress import Estimate, Progress
from sim.report.search_tables import (
    best_table,
    certainty_lines,
    deployments_table,
    front_in_words,
    front_table,
    launch_lines,
    method_in_words,
    other_lines,
    plan_in_words,
    verdicts,
)
from sim.scenario.load import LoadedScenario
from sim.scenario.schema import Scenario
from sim.sweep.capacity.deployments import (
    DeploymentVerdict,
    TriedDeployment,
    plan_json,
    plan_rows,
    settings_of,
)
from sim.sweep.capacity.plan import CapacityPlan
from sim.sweep.capacity.search import find_deployments, shown_of
from sim.sweep.plan import Settings, canonical, settings_text
from sim.sweep.result_files import write_search_results
from sim.sweep.store import POINTS, point_file
from sim.sweep.tune.plan import TunePlan
from sim.sweep.tune.results import TuneResults
from sim.sweep.tune.search import Search, run_tune
from sim.tables.text import counted
from sim.workers.choose import num_cores
from sim.workers.executor import TaskStatus

_MAX_LISTED = 20


def tune_in(
    out: Path, plan: TunePlan, search: Search, *, jobs: int | None, fresh: bool
) -> TuneResults:
    """Run the search in a folder, which is made if its parent exists.

    Without `jobs` there is a worker for each core. With `fresh`, stored points are run again, too.
    """
    prepare_folder(out)
    num_points = plan.num_trials * len(plan.seeds)
    jobs = jobs or num_cores()
    planned = _plan_in_words(plan, num_points)
    with searched_points(out, "tune", planned, jobs=jobs, fresh=fresh) as points:
        estimate = Estimate("tune", jobs)
        with ExitStack() as stack:
            shown: list[tuple[Progress, int]] = []

            def count(num_settled: int, num_run: int, _num_left: int) -> None:
                estimate.update(num_run, num_points - num_settled)
                if not shown:
                    # Points that are stored take no time.
                    left = Progress(num_points - num_settled, text=lambda _: "points")
                    shown.append((stack.enter_context(left), num_settled))
                progress, before = shown[0]
                progress.update(num_settled - before, 0)

            return TuneResults.of(plan, run_tune(plan, search, points, count))


def _plan_in_words(plan: TunePlan, num_points: int) -> str:
    text = f"{plan.num_trials:,} trials, {num_points:,} points"
    if plan.is_grid:
        return f"{text}: there are enough trials to run every setting"
    num = plan.space.num_settings
    return f"{text}: a search{'' if num is None else f' of {num:,} settings'}"


def print_tune(results: TuneResults, launches: Sequence[LaunchCommand]) -> None:
    print_line(f"{method_in_words(results)}\n")
    print_table(best_table(results))
    print_line("\n".join(["", *verdicts(results)]))
    if results.ranked():
        print_line(f"\n{front_in_words(results)}")
        print_table(front_table(results))
    for launch in launches:
        print_line("\n".join(["", *launch_lines(launch)]))


def launches_of_winner(plan: TunePlan, results: TuneResults) -> list[LaunchCommand]:
    """The winner's launch commands; settings outside of the scheduler's section have no flag."""
    winner = results.winner
    if winner is None:
        return []
    searched = {key: winner.settings[key] for key in plan.space.axes}
    return launches_of(plan.plan.vary(winner.tried), searched)


def warn_of_trials(results: TuneResults) -> None:
    left = [
        trial.trial
        for trial in results.trials
        if any("left_range" in (outcome.result or {}) for outcome in trial.outcomes)
    ]
    if left:
        winner = results.winner
        who = "the winner too" if winner is not None and winner.trial in left else "not the winner"
        say(
            f"tune: warning: {len(left):,} trials left the range in which their step times were"
            f" measured, {who}; the first is trial {left[0]}: see left_range in its points"
        )


def report_trials(results: TuneResults, out: Path) -> bool:
    """List the trials without results; returns whether any of them failed when it was run."""
    without = [trial for trial in results.trials if trial.sought is None]
    for trial in without[:_MAX_LISTED]:
        values = settings_text(trial.tried)
        keys = [outcome.key for outcome in trial.outcomes if outcome.status is not TaskStatus.DONE]
        where = f" (its scenario: {out / POINTS / point_file(keys[0])})" if keys else ""
        what = "failed" if keys else "is not valid"
        say(f"tune: trial {trial.trial} {what} ({values}): {trial.error}{where}")
    if len(without) > _MAX_LISTED:
        say(f"tune: {len(without) - _MAX_LISTED:,} more trials: see {out / 'results.csv'}")
    return any(trial.outcomes for trial in without)


class _RoundProgress:
    """Shows the progress of each round in which anything has to run."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._shown: Progress | None = None

    def __call__(self, num_points: int, num_settled: int) -> None:
        if self._shown is None:
            text = "points of this round"
            self._shown = self._stack.enter_context(Progress(num_points, text=lambda _: text))
        self._shown.update(num_settled, 0)
        if num_settled == num_points:
            self._shown.close()
            self._shown = None


def plan_in(
    out: Path, capacity: CapacityPlan, *, jobs: int | None, fresh: bool
) -> list[TriedDeployment]:
    """Simulate the candidates in a folder that is prepared; the arguments are as for a sweep."""
    planned = f"{len(capacity.candidates):,} candidates"
    workers = jobs or num_cores()
    with (
        searched_points(out, "plan", planned, jobs=workers, fresh=fresh) as points,
        ExitStack() as stack,
    ):
        return find_deployments(capacity, points, _RoundProgress(stack))


def print_plan(
    path: Path,
    overrides: Sequence[str],
    capacity: CapacityPlan,
    deployments: Sequence[TriedDeployment],
    launches: Sequence[LaunchCommand],
) -> None:
    """Print the deployments that meet the SLO, and the commands that run the first again."""
    shown = [one for one in deployments if one.verdict is DeploymentVerdict.MEETS]
    shown = shown_of(capacity, shown)
    print_line(plan_in_words(capacity))
    if not shown:
        print_line("No deployment meets the SLO.")
    else:
        print_line("")
        print_table(deployments_table(capacity, shown))
        print_line("\n".join(["", *certainty_lines(capacity, shown)]))
    others = list(other_lines(capacity, deployments))
    if others:
        print_line("\n".join(["", *others]))
    if shown:
        print_line("\nThe first one, simulated again:")
        print_line(_run_command(path, overrides, capacity, shown[0]))
        num, router = shown[0].replicas, capacity.plan.base.scenario.router.kind
        if shown[0].candidate.decoders is None:
            print_line(
                "One server." if num == 1 else f"{num} servers behind a router ({router}), each:"
            )
        for launch in launches:
            print_line("\n".join(launch_lines(launch)))


def _run_command(
    path: Path, overrides: Sequence[str], capacity: CapacityPlan, best: TriedDeployment
) -> str:
    """The command that runs the deployment alone."""
    settings = settings_of(capacity, best)
    texts = [*overrides, *(f"{key}={canonical(value)}" for key, value in settings.items())]
    options = [f"--set {quote(text)}" for text in texts]
    return " ".join(["simulate run", quote(str(path)), *options])


def write_plan(
    out: Path, capacity: CapacityPlan, deployments: Sequence[TriedDeployment]
) -> tuple[str, list[LaunchCommand]]:
    """Write the results; returns their text, and how to launch the servers of the best one."""
    best = deployments[0] if deployments else None
    launches: list[LaunchCommand] = []
    if best is not None and best.verdict is DeploymentVerdict.MEETS:
        varied = capacity.plan.vary(settings_of(capacity, best))
        launches = launches_of(varied, best.candidate.tried)
    text = plan_json(capacity, deployments, launches)
    write_search_results(plan_rows(capacity, deployments), text, out)
    return text, launches


def plan_exit_code(deployments: Sequence[TriedDeployment]) -> int:
    """1 if a candidate failed, or none meets the SLO."""
    verdicts = {one.verdict for one in deployments}
    meets = DeploymentVerdict.MEETS in verdicts
    return 1 if DeploymentVerdict.FAILED in verdicts or not meets else 0


_PARALLEL = ("latency.tp", "latency.dp", "latency.pp", "latency.moe_ep")


def launches_of(loaded: LoadedScenario, searched: Settings) -> list[LaunchCommand]:
    """The commands that launch the servers of a scenario: of each pool, and of their router.

    `searched` is as for `launch_of`; the settings of a pool begin with `pools.NAME.`.
    """
    sections = loaded.scenario.pools or {}
    if not loaded.pools:
        launch = launch_of(loaded.scenario, searched)
        return [] if launch is None else [launch]
    launches: list[LaunchCommand] = []
    hosts: dict[str, list[str]] = {}
    routers: dict[str, str] = {}
    family = family_named(loaded.scenario.scheduler.family)
    for name, pool in loaded.pools.items():
        role, own, own_keys = sections[name].role, pool.scenario, f"pools.{name}."
        mine = {
            key.removeprefix(own_keys): value
            for key, value in searched.items()
            if not key.startswith("pools.") or key.startswith(own_keys)
        }
        mine.pop("replicas", None)
        launch = launch_of(own, mine)
        if launch is None:
            return []
        count = counted(own.replicas, "server")
        server, flags = f"{launch.server}, pool {name}, {count}", family.role_flags(role)
        launches.append(replace(launch, server=server, flags=(*launch.flags, *flags)))
        hosts.setdefault(role, []).extend(f"{name}-{number}" for number in range(own.replicas))
        routers[role] = own.router.kind
    router = family.router_command(hosts, routers)
    return launches if router is None else [*launches, router]


def launch_of(scenario: Scenario, searched: Settings) -> LaunchCommand | None:
    """The launch command of each replica; None: the family is the user's own, and has none.

    `searched` are the settings that a search varied. Those of the scheduler become flags even if
    they are the server's defaults; others have no flag, and are named, but for the parallelism,
    which has.
    """
    family = family_named(scenario.scheduler.family)
    if type(family).launch_command is Family.launch_command:
        return None
    parts = {key: key.partition(".") for key in searched}
    keys = [rest for top, _, rest in parts.values() if top == "scheduler"]
    launch = family.launch_command(scenario.scheduler, keys)
    flags = (*launch.flags, *family.parallel_flags(parallelism(scenario.latency)))
    elsewhere = [
        f"{key}={canonical(searched[key])}"
        for key, (top, _, _) in parts.items()
        if top != "scheduler" and key not in _PARALLEL
    ]
    return replace(launch, flags=flags, without_flag=(*launch.without_flag, *elsewhere))

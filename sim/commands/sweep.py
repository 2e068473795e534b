"""`simulate sweep`, `tune` and `demo`: run many points of a scenario, and compare or rank them."""

from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.command_line import (
    Backend,
    Jobs,
    OutputFormat,
    RayAddress,
    Resume,
    Scenario,
    Set,
    command,
    format_option,
    out_option,
)
from sim.commands.without_file import Sure, made_sure
from sim.core.errors import InvariantError

if TYPE_CHECKING:
    from sim.sweep.plan import Plan
    from sim.sweep.store import PointOutcome

# Of the demo: the key that it varies, and its picture.
_T_MS = "scheduler.fairness.t_ms"
_PICTURE = "fairness-t.png"


@command(user_code=True)
def sweep(
    file: Scenario,
    set_: Set = None,
    jobs: Jobs = None,
    executor: Annotated[Backend, typer.Option(help="where points run")] = Backend.PROCESS,
    ray_address: RayAddress = None,
    out: Annotated[
        Path | None, out_option("folder for points and results; default: FILE-sweep")
    ] = None,
    resume: Resume = True,
    format_: Annotated[OutputFormat, format_option("results")] = OutputFormat.TABLE,
) -> int:
    """Run a scenario with every combination of values that its sweep section lists."""
    from sim.commands.output import check_folder, print_line, print_table
    from sim.commands.running.sweeps import report_failures, sweep_into, warn_of_ranges
    from sim.core.packed import name_of
    from sim.report.plots import check_report_section
    from sim.report.sweep_tables import same_rows, sweep_basis, sweep_intervals, sweep_table
    from sim.scenario.build import check_packages
    from sim.scenario.load import load_scenario
    from sim.sweep.plan import plan_sweep
    from sim.sweep.result_files import sweep_json
    from sim.workers.choose import choose_executor, num_cores

    plan = plan_sweep(load_scenario(file, set_ or ()))
    check_packages(plan.base)
    check_report_section(plan.base, plan)
    workers = choose_executor(jobs, ray=executor is Backend.RAY, ray_address=ray_address)
    out = out or Path(f"{name_of(file)}-sweep")
    check_folder(out, file)
    results = sweep_into(out, plan, workers, fresh=not resume, jobs=jobs or num_cores())
    if format_ is OutputFormat.JSON:
        print_line(sweep_json(results).rstrip())
    else:
        print_table(sweep_table(results))
        for line in (*same_rows(results), *sweep_basis(results)):
            print_line(line)
        if (intervals := sweep_intervals(results)) is not None:
            print_line(f"\n{intervals.title}:")
            print_table(intervals)
    warn_of_ranges(results)
    return report_failures(results, out)


@command(user_code=True)
def tune(
    file: Scenario,
    set_: Set = None,
    sure: Sure = False,
    jobs: Jobs = None,
    out: Annotated[
        Path | None, out_option("folder for points and results; default: FILE-tune")
    ] = None,
    resume: Resume = True,
    format_: Annotated[OutputFormat, format_option("results")] = OutputFormat.TABLE,
) -> int:
    """Search the ranges in a scenario's tune section for the best settings under its SLO."""
    from sim.commands.output import check_folder, print_line
    from sim.commands.running import sweeps
    from sim.core.packed import name_of
    from sim.scenario.build import check_packages
    from sim.scenario.load import load_scenario
    from sim.sweep.tune.plan import plan_tune
    from sim.sweep.tune.search import search_of

    plan = plan_tune(made_sure(load_scenario(file, set_ or ()), "tune", sure=sure))
    check_packages(plan.plan.base)
    search = search_of(plan)
    out = out or Path(f"{name_of(file)}-tune")
    check_folder(out, file)
    results = sweeps.tune_in(out, plan, search, jobs=jobs, fresh=not resume)
    launches = sweeps.launches_of_winner(plan, results)
    text = sweeps.write_tune(out, plan, results, launches)
    if format_ is OutputFormat.JSON:
        print_line(text.rstrip())
    else:
        sweeps.print_tune(results, launches)
    sweeps.warn_of_trials(results)
    failed = sweeps.report_trials(results, out)
    return 1 if failed or results.winner is None else 0


@command()
def demo(
    out: Annotated[Path, out_option("folder for the picture")] = Path("demo-out"),
) -> None:
    """Compare first come, first served with longest prefix match on built-in traffic."""
    from sim.commands.output import print_line, print_table
    from sim.core.files import make_folder
    from sim.report.figures.render import save_picture
    from sim.report.plots import draw_plot
    from sim.report.sweep_tables import fairness_table
    from sim.scenario.load import load_scenario_text
    from sim.sweep.plan import plan_sweep
    from sim.sweep.results import SweepResults

    make_folder(out)
    text = files("sim.commands").joinpath("demo.yaml").read_text(encoding="utf-8")
    plan = plan_sweep(load_scenario_text(text, name="demo.yaml"))
    outcomes = _outcomes(plan)
    results = SweepResults.of_plan(plan, (outcomes[str(point.number)] for point in plan.points))
    print_table(fairness_table(results, _T_MS))
    section = plan.base.scenario.report
    [plot] = (section.plots if section else None) or ()
    drawn = draw_plot(results, plot)
    save_picture(drawn.picture, out / _PICTURE)
    print_line("")
    print_line(drawn.caption)
    print_line(f"picture: {out / _PICTURE}")


def _outcomes(plan: "Plan") -> "dict[str, PointOutcome]":
    """Run all points on all cores, and store nothing; returns the outcomes by point number."""
    from sim.commands.running.points import run_point
    from sim.report.progress import Progress
    from sim.workers.choose import num_cores
    from sim.workers.executor import PointWork, Task, TaskStatus
    from sim.workers.process_pool import ProcessPool

    tasks = [Task(str(point.number), PointWork(plan.vary(point.settings))) for point in plan.points]
    pool = ProcessPool(min(len(tasks), num_cores()))
    outcomes = {}
    with (
        Progress(len(tasks), text=lambda _: "values of T") as progress,
        closing(pool.run(tasks, run_point)) as arriving,
    ):
        for outcome in arriving:
            if outcome.status is not TaskStatus.DONE:
                raise InvariantError(f"demo.yaml: {outcome.message}")
            outcomes[outcome.key] = outcome
            progress.update(len(outcomes), 0)
    return outcomes

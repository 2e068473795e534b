"""Simulates the replicas of one run in several workers, if no replica can influence another."""

import traceback
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from sim.commands.running.simulate import Simulated, Simulation, deployment_of, simulate_here
from sim.core.errors import InputError, WorkerError, say
from sim.core.packed import STDIN
from sim.des.part import PartFailedError, simulate_part
from sim.des.routers.router import looks_at_loads
from sim.des.routers.table import make_router
from sim.des.servers import RunOptions
from sim.latency.model import Ranged, RangeReport, each_latency
from sim.report.progress import Progress
from sim.runlog.columns import LogPart, joined
from sim.runlog.decisions import DecisionLog, StepLines
from sim.scenario.build import BuiltScenario, build, located_errors
from sim.scenario.load import LoadedScenario
from sim.scenario.schema import Scenario
from sim.sweep.store import named_files
from sim.workers.choose import choose_executor
from sim.workers.executor import Task, TaskExecutor, TaskOutcome, TaskStatus
from sim.workload.traces.read import TraceReader


@dataclass(frozen=True, slots=True, kw_only=True)
class PartWork:
    """What a worker is to do: simulate the replicas with these numbers.

    The scenario's folder is an absolute path; the options have neither files nor watchers. With
    `decides`, the lines of the decision log are wanted.
    """

    loaded: LoadedScenario
    replicas: tuple[int, ...]
    options: RunOptions
    decides: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartResult:
    """What a worker did.

    `left` has for each of its replicas what latency models say of their ranges; `decisions` the
    lines of the decision log, compressed, by number of the server or rank.
    """

    log: LogPart
    left: dict[int, list[RangeReport]]
    decisions: dict[int, list[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartError:
    """Bad input that was found during the simulation: when, what, and where in the code."""

    at_ns: int
    message: str
    trace: str


def in_workers(
    built: BuiltScenario, jobs: int | None, *, ray: bool = False, ray_address: str | None = None
) -> Simulation:
    """How to simulate the replicas of a scenario in workers. It changes no result.

    If some replica can influence another, it runs in this process, and stderr says why.

    Without `jobs` there is a worker for each core, but no more than replicas. Without
    `ray_address`, the Ray cluster is on this machine.
    """
    # A forked worker would keep the traffic that this process has, beside its own part.
    executor = choose_executor(jobs, ray=ray, ray_address=ray_address, forks=False)
    if (reason := _dependence(built)) is not None:
        say(f"servetwin: {built.loaded.path}: runs in one process: {reason}")
        return simulate_here
    num_replicas = len(built.latencies)
    num_parts = min(jobs or num_replicas, num_replicas)
    return partial(_simulate, executor=executor, num_parts=num_parts)


def _share_a_store(scenario: Scenario) -> bool:
    store = scenario.store
    return (store is not None and store.shared) or scenario.scheduler.has_shared_stores


def _dependence(built: BuiltScenario) -> str | None:
    """Why the replicas cannot be simulated each on its own; None: they can."""
    scenario, base_dir = built.loaded.scenario, built.loaded.base_dir
    for is_so, reason in (
        (scenario.autoscale is not None, "its autoscaler looks at all replicas"),
        (bool(built.pools), "its servers are in pools"),
        (scenario.replicas == 1, "it has one replica"),
        (_share_a_store(scenario), "its replicas share a store"),
    ):
        if is_so:
            return reason
    if built.workload.clients or built.workload.phases:
        return "its clients wait for answers, and answers depend on all replicas"
    with located_errors(built.loaded):
        router = make_router(scenario.router, base_dir, scenario.seed)
    if looks_at_loads(router):
        return f"router {scenario.router.kind} looks at the loads of all replicas"
    for path in named_files(scenario, base_dir):
        if path.name == STDIN.name or not (path.is_file() or path.is_dir() or not path.exists()):
            return f"{path} can be read only once"
    return None


def _simulate(
    built: BuiltScenario, options: RunOptions, *, executor: TaskExecutor, num_parts: int
) -> Simulated:
    """Simulate in parts, and join them.

    Raises:
        InputError: the first one of the run, as in one process.
        WorkerError: a worker ended, or found a defect of servetwin.
    """
    deployment = deployment_of(built)
    num_ranks = deployment.pools[0].servers.num_ranks
    decisions = None
    if options.decisions is not None:
        decisions = DecisionLog(options.decisions, len(built.latencies), num_ranks)
    try:
        results = _results(list(_run(built, options, executor, num_parts)))
        if decisions is not None:
            for result in results:
                for number, packed in result.decisions.items():
                    decisions.steps.add(number, packed)
        log = joined([result.log for result in results], num_ranks, deployment.meta(options.meta))
        if decisions is not None:
            decisions.close(log)
    finally:
        if decisions is not None:
            decisions.discard()
    left = dict(sorted(item for result in results for item in result.left.items()))
    return log, RangeReport.merged(report for reports in left.values() for report in reports)


def _run(
    built: BuiltScenario, options: RunOptions, executor: TaskExecutor, num_parts: int
) -> Iterator[TaskOutcome[PartResult | PartError]]:
    """The outcomes of all parts, with progress on stderr."""
    loaded = replace(built.loaded, base_dir=built.loaded.base_dir.resolve())
    num_replicas = len(built.latencies)
    works = [
        PartWork(
            loaded=loaded,
            replicas=tuple(range(number, num_replicas, num_parts)),
            options=replace(options, decisions=None, watcher=None, meta={}),
            decides=options.decisions is not None,
        )
        for number in range(num_parts)
    ]
    tasks = [Task(str(number), work) for number, work in enumerate(works)]
    num_done = 0
    with (
        Progress(num_replicas, text=lambda _: "replicas") as progress,
        closing(executor.run(tasks, run_part)) as outcomes,
    ):
        for outcome in outcomes:
            num_done += len(works[int(outcome.key)].replicas)
            progress.update(num_done, 0)
            yield outcome


def _results(outcomes: Sequence[TaskOutcome[PartResult | PartError]]) -> list[PartResult]:
    """The results of all parts in order; raises the first error of the run, if there is one."""
    results: list[PartResult] = []
    errors: list[PartError] = []
    for outcome in sorted(outcomes, key=lambda outcome: int(outcome.key)):
        if isinstance(outcome.result, PartResult):
            results.append(outcome.result)
        elif isinstance(outcome.result, PartError):
            errors.append(outcome.result)
        elif outcome.status is TaskStatus.BAD_INPUT:
            raise InputError(outcome.message or "")
        else:
            raise WorkerError(outcome.message or "", outcome.trace)
    if errors:
        first = min(errors, key=lambda error: error.at_ns)
        error = InputError(first.message)
        error.add_note(first.trace)
        raise error
    return results


def run_part(work: PartWork, read_trace: TraceReader) -> PartResult | PartError:
    built = build(work.loaded, read_trace=read_trace)
    with located_errors(work.loaded):
        deployment = deployment_of(built)
    num_ranks = deployment.pools[0].servers.num_ranks
    lines = StepLines(len(built.latencies), num_ranks) if work.decides else None
    try:
        log = simulate_part(built.workload, deployment, work.replicas, work.options, lines)
        decisions = {} if lines is None else {at: lines.packed(at) for at in log.gaps}
    except PartFailedError as failed:
        return _error(failed, work.loaded)
    finally:
        if lines is not None:
            lines.discard()
    left = {number: _left(built, number) for number in work.replicas}
    return PartResult(log=log, left=left, decisions=decisions)


def _error(failed: PartFailedError, loaded: LoadedScenario) -> PartError:
    """The error with its file and line; raises it if it is no bad input."""
    try:
        with located_errors(loaded):
            raise failed.error
    except InputError as error:
        return PartError(
            at_ns=failed.at_ns, message=str(error), trace=traceback.format_exc().rstrip()
        )


def _left(built: BuiltScenario, number: int) -> list[RangeReport]:
    models = each_latency([built.latencies[number]])
    return [model.left_range() for model in models if isinstance(model, Ranged)]

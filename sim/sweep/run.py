"""Runs the points of a sweep that are not stored yet, and stores every outcome at once."""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace

from sim.scenario.load import LoadedScenario
from sim.scenario.schema import BESIDE_THE_RUN
from sim.sweep.identity import Identities
from sim.sweep.plan import Plan, Point
from sim.sweep.points import PointOutcome, PointRunner
from sim.sweep.store import PointStore, StoreContents
from sim.workers.executor import Task, TaskExecutor, TaskStatus

# Called after each finished point, with the number of points finished so far.
Watcher = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class SweepState:
    """A plan, and which of its points are stored already.

    Attributes:
        plan: what to run.
        keys: the keys of the plan's points, in their order; equal points have equal keys.
        stored: what the store holds.
        missing: the points to run, one for each key, in the plan's order.
    """

    plan: Plan
    keys: tuple[str, ...]
    stored: StoreContents
    missing: tuple[Point, ...]


def sweep_state(plan: Plan, store: PointStore, *, code: str, fresh: bool = False) -> SweepState:
    """Find out which points have to run: those not stored, and those that failed.

    Args:
        plan: the sweep.
        store: where finished points are.
        code: the version of the code.
        fresh: run all points again.

    Raises:
        InputError: the store cannot be read.
    """
    keys = point_keys(plan, Identities(code))
    stored = store.read(keys)
    return state_of(plan, keys, replace(stored, outcomes={}) if fresh else stored)


def point_keys(plan: Plan, identities: Identities) -> tuple[str, ...]:
    """The keys under which the plan's points are stored, in the plan's order."""
    return tuple(identities.key(plan.scenario(point)) for point in plan.points)


def state_of(plan: Plan, keys: tuple[str, ...], stored: StoreContents) -> SweepState:
    """Which points of a plan have to run: those without a stored success."""
    done = {k: v for k, v in stored.outcomes.items() if v.status is TaskStatus.DONE}
    # Equal points are run once.
    first = dict(reversed(list(zip(keys, plan.points, strict=True))))
    missing = tuple(
        point
        for key, point in zip(keys, plan.points, strict=True)
        if key not in done and first[key] is point
    )
    return SweepState(plan, keys, replace(stored, outcomes=done), missing)


def run_sweep(
    state: SweepState,
    store: PointStore,
    executor: TaskExecutor,
    runner: PointRunner,
    watcher: Watcher | None = None,
) -> Mapping[str, PointOutcome]:
    """Run the missing points; every outcome is stored before the next one is awaited.

    Returns:
        all outcomes of the plan by key, those stored before included.

    Raises:
        InputError: an outcome cannot be stored, or the executor cannot be used. The workers are
            stopped; what was stored stays.
    """
    outcomes = dict(state.stored.outcomes)
    points = {state.keys[point.number]: point for point in state.missing}
    tasks = (Task(key, _with_absolute_folder(state.plan, point)) for key, point in points.items())
    with closing(executor.run(tasks, runner)) as arriving:
        for number, outcome in enumerate(arriving, start=1):
            point = points[outcome.key]
            store.write(outcome, _description(state.plan, point))
            outcomes[outcome.key] = outcome
            if watcher is not None:
                watcher(number)
    return outcomes


def _with_absolute_folder(plan: Plan, point: Point) -> LoadedScenario:
    """The point's scenario with an absolute folder: a worker may run in another folder."""
    loaded = plan.scenario(point)
    return replace(loaded, base_dir=loaded.base_dir.resolve())


def _description(plan: Plan, point: Point) -> dict[str, object]:
    scenario = plan.scenario(point).scenario
    described = scenario.model_dump(mode="json", exclude=set(BESIDE_THE_RUN))
    return {"settings": dict(point.settings), "scenario": described}

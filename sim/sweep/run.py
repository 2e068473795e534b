"""Runs the points of a sweep that are not stored yet, and stores every outcome at once."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

from sim.latency.config import ProfileLatencyConfig
from sim.latency.model_key import MODEL_FILES
from sim.latency.profile.format import shipped_profiles
from sim.scenario.load import LoadedScenario
from sim.scenario.overrides import FILE_KEYS
from sim.scenario.schema import BESIDE_THE_RUN, Scenario
from sim.sweep.plan import Plan, Point
from sim.sweep.store import PointOutcome, PointRunner, PointStore, StoreContents
from sim.workers.executor import Task, TaskExecutor, TaskStatus
from sim.workload.traces.files import TOKENIZER_FILE

_CHUNK_BYTES = 1 << 20


class Identities:
    """Computes the keys of points; each file is read once."""

    def __init__(self, code: str) -> None:
        self._code = code
        self._digests: dict[Path, str] = {}

    def key(self, loaded: LoadedScenario) -> str:
        """SHA-256 in hex of everything a point's results depend on.

        If a missing file appears later, the key changes.
        """
        digest = hashlib.sha256(f"{self._code}\0{loaded.content_hash}\0".encode())
        scenarios = [loaded, *loaded.pools.values()]
        for each in scenarios:
            for path in named_files(each.scenario, each.base_dir):
                digest.update(f"{self._digest(path)}\0".encode())
        return digest.hexdigest()

    def _digest(self, path: Path) -> str:
        if path not in self._digests:
            self._digests[path] = _file_digest(path)
        return self._digests[path]


def named_files(scenario: Scenario, base_dir: Path) -> list[Path]:
    """The files of a scenario: traces, tables, profiles, recordings, host times, models.

    A name of packaged data gives a path that does not exist.
    """
    sections = scenario.model_dump(mode="json", exclude=set(BESIDE_THE_RUN))
    named = [(key, base_dir / name) for key, name in _names(sections)]
    paths = [file for key, path in named for file in _files(key, path)]
    if isinstance(scenario.latency, ProfileLatencyConfig):
        # Shipped profiles are not in package `sim`, so the code's version does not cover them.
        shipped = shipped_profiles().get(scenario.latency.path)
        paths += [] if shipped is None else [Path(str(shipped))]
    return paths


def _files(key: str, path: Path) -> list[Path]:
    """The file itself; of a folder, what is read of it: not a model's weights."""
    if not path.is_dir():
        return [path]
    if key == "model":
        return [path / name for name in MODEL_FILES]
    if key == "tokenizer":
        return [path / TOKENIZER_FILE]
    return sorted(file for file in path.rglob("*") if file.is_file())


def _names(value: object) -> Iterator[tuple[str, str]]:
    """Keys that name files, and the names."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key in FILE_KEYS and isinstance(item, str):
                yield key, item
            else:
                yield from _names(item)
    elif isinstance(value, list):
        for item in value:
            yield from _names(item)


def _file_digest(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        if not path.is_file():
            return "none"
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    except OSError:
        # The worker that runs the point reports the error.
        return "unreadable"
    return digest.hexdigest()


# Called after each finished point, with the number of points finished so far.
Watcher = Callable[[int], None]
# Called with the number of points that have an outcome, and how many of them had to be run.
SearchWatcher = Callable[[int, int], None]


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

    Raises:
        InputError: the store cannot be read.
    """
    keys = point_keys(plan, Identities(code))
    stored = store.read(keys)
    return state_of(plan, keys, replace(stored, outcomes={}) if fresh else stored)


def point_keys(plan: Plan, identities: Identities) -> tuple[str, ...]:
    """The keys under which the plan's points are stored, in the plan's order."""
    return tuple(identities.key(plan.vary(point.settings)) for point in plan.points)


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
    loaded = plan.vary(point.settings)
    return replace(loaded, base_dir=loaded.base_dir.resolve())


def _description(plan: Plan, point: Point) -> dict[str, object]:
    scenario = plan.vary(point.settings).scenario
    described = scenario.model_dump(mode="json", exclude=set(BESIDE_THE_RUN))
    return {"settings": dict(point.settings), "scenario": described}


class MemoisedPoints:
    """Runs points and remembers outcomes: known or stored points are not run again.

    With `fresh`, no point that was stored before is used.
    """

    def __init__(
        self,
        store: PointStore,
        executor: TaskExecutor,
        runner: PointRunner,
        *,
        code: str,
        fresh: bool = False,
    ) -> None:
        self._store = store
        self._executor = executor
        self._runner = runner
        self._identities = Identities(code)
        self._fresh = fresh
        self._outcomes: dict[str, PointOutcome] = {}
        self.num_settled = 0
        self.num_run = 0

    def run(
        self, plan: Plan, groups: Iterable[Sequence[Point]], watcher: SearchWatcher
    ) -> list[tuple[PointOutcome, ...]]:
        """The outcomes of groups of points, in their order; run as one, so all workers are busy."""
        listed = list(groups)
        points = chain.from_iterable(listed)
        numbered = (replace(point, number=number) for number, point in enumerate(points))
        plan = replace(plan, points=tuple(numbered))
        keys = point_keys(plan, self._identities)
        known = self._known(keys)
        state = state_of(plan, keys, StoreContents(known, 0, 0))
        missing = {keys[point.number] for point in state.missing}
        before = (self.num_settled + sum(key not in missing for key in keys), self.num_run)

        def count(done: int) -> None:
            self.num_settled, self.num_run = before[0] + done, before[1] + done
            watcher(self.num_settled, self.num_run)

        count(0)
        self._outcomes |= run_sweep(state, self._store, self._executor, self._runner, count)
        outcomes = (self._outcomes[key] for key in keys)
        return [tuple(islice(outcomes, size)) for size in map(len, listed)]

    def _known(self, keys: Sequence[str]) -> Mapping[str, PointOutcome]:
        here = {key: self._outcomes[key] for key in keys if key in self._outcomes}
        if self._fresh:
            return here
        return self._store.find(key for key in dict.fromkeys(keys) if key not in here) | here

"""Runs the points of a sweep that are not stored yet, and stores every outcome at once."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path

from sim.latency.architectures.model_key import MODEL_FILES
from sim.latency.config import ProfileLatencyConfig
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


# Called before the first point of a run and after each, with numbers of points: those that have an
# outcome, those of them that had to run, and those that this run has still to do.
Watcher = Callable[[int, int, int], None]


class StoredPoints:
    """Runs points and stores every outcome at once: known or stored points are not run again.

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
        # The keys of points that had one before, by the hash of their scenarios.
        self._keys: dict[str, str] = {}
        self._outcomes: dict[str, PointOutcome] = {}
        self.num_settled = 0
        self.num_run = 0

    def read(self, plan: Plan) -> StoreContents:
        """Read what is stored of a plan, and count what of the folder cannot be used.

        Raises:
            InputError: the store cannot be read.
        """
        contents = self._store.read(self.key(plan, point) for point in plan.points)
        if not self._fresh:
            self._outcomes |= contents.outcomes
        return contents

    def key(self, plan: Plan, point: Point) -> str:
        """The key under which a point is stored; equal points have equal keys."""
        if point.content_hash not in self._keys:
            self._keys[point.content_hash] = self._identities.key(plan.vary(point.settings))
        return self._keys[point.content_hash]

    def run(
        self, plan: Plan, groups: Iterable[Sequence[Point]], watcher: Watcher
    ) -> list[tuple[PointOutcome, ...]]:
        """The outcomes of groups of points, in their order; run as one, so all workers are busy.

        Points without a success are run; every outcome is stored before the next one is awaited.

        Raises:
            InputError: an outcome cannot be stored, or the executor cannot be used. The workers are
                stopped; what was stored stays.
        """
        listed = list(groups)
        points: dict[str, Point] = {}
        for point in chain.from_iterable(listed):
            points.setdefault(self.key(plan, point), point)
        keys = [[self.key(plan, point) for point in group] for group in listed]
        if not self._fresh:
            unknown = [key for key in points if key not in self._outcomes]
            self._outcomes |= self._store.find(unknown)
        missing = {key: point for key, point in points.items() if not self._is_done(key)}
        self.num_settled += sum(key not in missing for key in chain.from_iterable(keys))
        num_left = len(missing)
        watcher(self.num_settled, self.num_run, num_left)
        tasks = (Task(key, _with_absolute_folder(plan, point)) for key, point in missing.items())
        with closing(self._executor.run(tasks, self._runner)) as arriving:
            for outcome in arriving:
                self._store.write(outcome, _description(plan, missing[outcome.key]))
                self._outcomes[outcome.key] = outcome
                self.num_settled, self.num_run = self.num_settled + 1, self.num_run + 1
                num_left -= 1
                watcher(self.num_settled, self.num_run, num_left)
        return [tuple(self._outcomes[key] for key in group) for group in keys]

    def _is_done(self, key: str) -> bool:
        known = self._outcomes.get(key)
        return known is not None and known.status is TaskStatus.DONE


def _with_absolute_folder(plan: Plan, point: Point) -> LoadedScenario:
    """The point's scenario with an absolute folder: a worker may run in another folder."""
    loaded = plan.vary(point.settings)
    return replace(loaded, base_dir=loaded.base_dir.resolve())


def _description(plan: Plan, point: Point) -> dict[str, object]:
    scenario = plan.vary(point.settings).scenario
    described = scenario.model_dump(mode="json", exclude=set(BESIDE_THE_RUN))
    return {"settings": dict(point.settings), "scenario": described}

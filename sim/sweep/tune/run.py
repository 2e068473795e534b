"""Runs a search: chooses, runs and scores batches of settings, and tells the search the scores.

Only points are stored. If a search was killed, the same command chooses the same settings again,
finds their points in the store, and runs the rest.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from sim.core.errors import InputError
from sim.sweep.plan import Plan, Point, Settings
from sim.sweep.run import Identities, point_keys, run_sweep, state_of
from sim.sweep.store import PointOutcome, PointRunner, PointStore, StoreContents
from sim.sweep.tune.objective import Score, score
from sim.sweep.tune.plan import TunePlan
from sim.sweep.tune.search import Search
from sim.workers.executor import TaskExecutor, TaskStatus

# Called with the number of points that have an outcome, and how many of them had to be run.
TuneWatcher = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Trial:
    """A setting and its outcomes.

    Attributes:
        number: from 0, in the order in which trials are chosen; 0 is the scenario's own setting.
        settings: values by key path.
        outcomes: one for each seed; none if the values contradict each other.
        score: None unless all outcomes are done.
        message: what is wrong with the values; None if they are valid.
    """

    number: int
    settings: Settings
    outcomes: tuple[PointOutcome, ...]
    score: Score | None
    message: str | None = None

    @property
    def error(self) -> str | None:
        """What went wrong first; None if nothing did."""
        messages = (outcome.message for outcome in self.outcomes if outcome.message is not None)
        return self.message or next(messages, None)


class MemoisedPoints:
    """Runs points and remembers outcomes: known or stored points are not run again.

    Args:
        store: has finished points, and gets new ones.
        executor: runs points.
        runner: runs one point.
        code: the version of the code.
        fresh: use no point that was stored before.
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

    def run(self, plan: Plan, watcher: TuneWatcher) -> list[PointOutcome]:
        """The outcomes of a plan's points, in their order."""
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
        return [self._outcomes[key] for key in keys]

    def _known(self, keys: Sequence[str]) -> Mapping[str, PointOutcome]:
        here = {key: self._outcomes[key] for key in keys if key in self._outcomes}
        if self._fresh:
            return here
        return self._store.find(key for key in dict.fromkeys(keys) if key not in here) | here


def run_tune(
    tune: TunePlan, search: Search, memo: MemoisedPoints, watcher: TuneWatcher
) -> list[Trial]:
    """Try `tune.num_trials` settings, the scenario's own setting first."""
    batch_size = tune.num_trials if tune.is_grid else tune.section.batch_size
    trials: list[Trial] = []
    while len(trials) < tune.num_trials:
        # The scenario's own setting is tried even if it is outside the ranges.
        outside: list[Settings] = [] if trials or tune.own_is_inside else [{}]
        wanted = min(batch_size, tune.num_trials - len(trials)) - len(outside)
        chosen = [tune.space.settings(places) for places in search.ask(wanted)]
        batch = _tried(tune, len(trials), [*outside, *chosen], memo, watcher)
        search.tell([trial.score for trial in batch[len(outside) :]])
        trials += batch
    return trials


def _tried(
    tune: TunePlan,
    first_number: int,
    batch: Sequence[Settings],
    memo: MemoisedPoints,
    watcher: TuneWatcher,
) -> list[Trial]:
    """Run a batch as one plan, so that all workers are busy."""
    planned = [_points(tune, settings) for settings in batch]
    all_points = chain.from_iterable(points for points, _ in planned)
    numbered = (replace(point, number=number) for number, point in enumerate(all_points))
    outcomes = iter(memo.run(replace(tune.plan, points=tuple(numbered)), watcher))
    trials = []
    for number, (settings, (points, message)) in enumerate(
        zip(batch, planned, strict=True), start=first_number
    ):
        own = tuple(next(outcomes) for _ in points)
        trials.append(Trial(number, settings, own, _score(tune, settings, own), message))
    return trials


def _points(tune: TunePlan, settings: Settings) -> tuple[tuple[Point, ...], str | None]:
    try:
        return tune.points(settings), None
    except InputError as error:
        return (), str(error)


def _score(tune: TunePlan, settings: Settings, outcomes: Sequence[PointOutcome]) -> Score | None:
    summaries = [outcome.result for outcome in outcomes if outcome.status is TaskStatus.DONE]
    done = [summary for summary in summaries if summary is not None]
    if not done or len(done) < len(outcomes):
        return None
    varied = tune.plan.vary(settings)
    pools = [pool.scenario for pool in varied.pools.values()]
    return score(tune.section, varied.scenario, done, pools)

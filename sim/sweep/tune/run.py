"""Runs a search: chooses, runs and scores batches of settings, and tells the search the scores.

Only points are stored. If a search was killed, the same command chooses the same settings again,
finds their points in the store, and runs the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sim.core.errors import InputError
from sim.sweep.plan import Point, Settings
from sim.sweep.run import MemoisedPoints, SearchWatcher
from sim.sweep.store import PointOutcome
from sim.sweep.tune.plan import Score, TunePlan, score
from sim.sweep.tune.search import Search
from sim.workers.executor import TaskStatus


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


def run_tune(
    tune: TunePlan, search: Search, memo: MemoisedPoints, watcher: SearchWatcher
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
    watcher: SearchWatcher,
) -> list[Trial]:
    planned = [_points(tune, settings) for settings in batch]
    outcomes = memo.run(tune.plan, (points for points, _ in planned), watcher)
    return [
        Trial(number, settings, own, _score(tune, settings, own), message)
        for number, (settings, own, (_, message)) in enumerate(
            zip(batch, outcomes, planned, strict=True), start=first_number
        )
    ]


def _points(tune: TunePlan, settings: Settings) -> tuple[tuple[Point, ...], str | None]:
    try:
        return tune.plan.with_seeds(settings, tune.seeds), None
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

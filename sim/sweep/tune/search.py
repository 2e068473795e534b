"""Runs a search: batches of settings, all of a grid or those that Optuna proposes, are scored.

Only points are stored. If a search was killed, the same command chooses the same settings again,
finds their points in the store, and runs the rest.
"""

from collections.abc import Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

from sim.core.errors import InputError
from sim.extras import how_to_install
from sim.sweep.plan import Point, Settings, log_uniform
from sim.sweep.store import PointOutcome, StoredPoints, Watcher
from sim.sweep.tune.plan import Score, TunePlan, score
from sim.sweep.tune.results import TrialResult
from sim.sweep.tune.space import Axis, Countable, Place, Places, Space
from sim.workload.rng import RandomStreams


class GridSearch:
    """Chooses all settings of a finite space, `first` before the others, if it is given."""

    def __init__(self, space: Space, first: Places | None) -> None:
        others = (places for places in space.all_places() if places != first)
        self._left = others if first is None else chain([first], others)

    def ask(self, count: int) -> list[Places]:
        """`count` settings that were never chosen before; fewer only if no others are left."""
        return list(islice(self._left, count))

    def tell(self, scores: Sequence[Score | None]) -> None:
        """Ignore the scores: the order of a grid is fixed."""


# If Optuna proposes this many settings in a row that were tried before, or that do not fit, one is
# drawn at random.
_MAX_REPEATS = 32
# The first quarter of the trials is random, within these bounds on their number.
_MIN_RANDOM, _MAX_RANDOM = 4, 10


class OptunaSearch:
    """Chooses settings near good ones: by the space, its seed, and the scores in their order.

    `first` is tried first, if it is given. The space has more than `num_trials` settings.
    """

    def __init__(self, space: Space, first: Places | None, *, seed: int, num_trials: int) -> None:
        self._optuna = load_optuna()
        self._space = space
        self._distributions = {
            key: _distribution(self._optuna, axis) for key, axis in space.axes.items()
        }
        num_random = min(max(num_trials // 4, _MIN_RANDOM), _MAX_RANDOM)
        sampler = self._optuna.samplers.TPESampler(seed=seed, n_startup_trials=num_random)
        self._study = self._optuna.create_study(sampler=sampler)
        self._rng = RandomStreams(seed, "tune").stream("unseen")
        self._seen: set[Places] = set()
        self._asked: list[Any] = []
        if first is not None:
            self._enqueue(first)

    def ask(self, count: int) -> list[Places]:
        """`count` settings that were never chosen before."""
        return [self._ask_one() for _ in range(count)]

    def tell(self, scores: Sequence[Score | None]) -> None:
        """The scores of the settings of the last `ask`, in their order; None: a setting failed."""
        states = self._optuna.trial.TrialState
        for trial, found in zip(self._asked, scores, strict=True):
            if found is None:
                # Settings near one that failed are likely to fail too.
                self._study.tell(trial, state=states.PRUNED)
                continue
            if found.shortfall is not None:
                trial.set_constraint("slo", found.shortfall)
            self._study.tell(trial, found.sought)
        self._asked.clear()

    def _ask_one(self) -> Places:
        states = self._optuna.trial.TrialState
        for _ in range(_MAX_REPEATS):
            trial = self._study.ask(self._distributions)
            places = self._places(trial)
            if places not in self._seen and self._space.has(places):
                break
            self._study.tell(trial, state=states.FAIL)
        else:
            places = self._unseen()
            self._enqueue(places)
            trial = self._study.ask(self._distributions)
        self._seen.add(places)
        self._asked.append(trial)
        return places

    def _places(self, trial: Any) -> Places:
        return tuple(trial.params[key] for key in self._space.axes)

    def _enqueue(self, places: Places) -> None:
        self._study.enqueue_trial(dict(zip(self._space.axes, places, strict=True)))

    def _unseen(self) -> Places:
        while True:
            places = tuple(self._drawn(axis) for axis in self._space.axes.values())
            if places not in self._seen and self._space.has(places):
                return places

    def _drawn(self, axis: Axis) -> Place:
        if isinstance(axis, Countable):
            return int(self._rng.integers(axis.num_values))
        if axis.is_log:
            return log_uniform(self._rng, axis.low, axis.high)
        return float(self._rng.uniform(axis.low, axis.high))


Search = GridSearch | OptunaSearch


def _distribution(optuna: Any, axis: Axis) -> Any:
    kinds = optuna.distributions
    if not isinstance(axis, Countable):
        return kinds.FloatDistribution(axis.low, axis.high, log=axis.is_log)
    if axis.is_scale:
        return kinds.IntDistribution(0, axis.num_values - 1)
    return kinds.CategoricalDistribution(tuple(range(axis.num_values)))


def load_optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise InputError(f"a search needs Optuna: {how_to_install('tune')}") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def search_of(plan: TunePlan) -> Search:
    """How to search. Raises InputError if that takes Optuna, which is not installed."""
    first = plan.space.places(plan.own)
    if plan.is_grid:
        return GridSearch(plan.space, first)
    return OptunaSearch(
        plan.space, first, seed=plan.section.seed, num_trials=plan.section.num_trials
    )


def run_tune(
    tune: TunePlan, search: Search, memo: StoredPoints, watcher: Watcher
) -> list[TrialResult]:
    """Try `tune.num_trials` settings, the scenario's own setting first."""
    batch_size = tune.num_trials if tune.is_grid else tune.section.batch_size
    trials: list[TrialResult] = []
    while len(trials) < tune.num_trials:
        # The scenario's own setting is tried even if it is outside the ranges.
        outside: list[Settings] = [] if trials or tune.own_is_inside else [{}]
        wanted = min(batch_size, tune.num_trials - len(trials)) - len(outside)
        chosen = [tune.space.settings(places) for places in search.ask(wanted)]
        batch = [*outside, *chosen]
        planned = [_points(tune, settings) for settings in batch]
        outcomes = memo.run(tune.plan, (points for points, _ in planned), watcher)
        scores = list(map(partial(_score, tune), batch, outcomes))
        search.tell(scores[len(outside) :])
        tried = zip(batch, outcomes, scores, planned, strict=True)
        trials += [
            TrialResult.of(tune, number, settings, own, found, reason)
            for number, (settings, own, found, (_, reason)) in enumerate(tried, len(trials))
        ]
    return trials


def _points(tune: TunePlan, settings: Settings) -> tuple[tuple[Point, ...], str | None]:
    """A point for each seed; or none, and why the values contradict each other."""
    try:
        return tune.plan.with_seeds(settings, tune.seeds), None
    except InputError as error:
        return (), str(error)


def _score(tune: TunePlan, settings: Settings, outcomes: Sequence[PointOutcome]) -> Score | None:
    done = [one.result for one in outcomes if one.result is not None]
    if not done or len(done) < len(outcomes):
        return None
    varied = tune.plan.vary(settings)
    pools = [pool.scenario for pool in varied.pools.values()]
    return score(tune.section, varied.scenario, done, pools)

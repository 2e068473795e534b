"""Searches for the traffic under which a contestant's worst request suffers most."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sim.contest.attack.duel import Duel, Outcome
from sim.contest.attack.shrink import smaller
from sim.contest.attack.streams import NUM_STREAMS, RequestStream, Row, TraceLimits, rows_of
from sim.core.errors import InputError
from sim.sweep.tune.search import load_optuna

# A third of the trials is random: the space is wide, and most of it harmless.
_RANDOM_SHARE = 3
# Requests come within this many units, and with gaps in this range.
_MOST_BEGIN, _GAPS = 30.0, (0.01, 3.0)
_SHARES = (0.0, 0.5, 0.98)
_PRIORITIES = (0, 1, 2)
_SHORTEST_PROMPT = 16


class Found(NamedTuple):
    """What a search found.

    Attributes:
        rows: the requests of the trace, as few as it takes.
        outcome: how the contestant and the reference serve them.
        num_trials: traces of the search that both served.
        num_shrinking: traces that were tried to make the worst one smaller.
        first_rows: requests of the trace before it was made smaller.
        first_score: its score then.
    """

    rows: list[Row]
    outcome: Outcome
    num_trials: int
    num_shrinking: int
    first_rows: int
    first_score: float


def attack(
    duel: Duel,
    limits: TraceLimits,
    *,
    num_trials: int,
    seed: int,
    watcher: Callable[[int], None],
) -> Found:
    """Search with this many traces, and make the worst one smaller.

    `watcher` is told after each trace how many there were.

    Raises:
        InputError: Optuna is not installed, or no trace was served to its end by both.
    """
    optuna = load_optuna()
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=num_trials // _RANDOM_SHARE)
    study = optuna.create_study(sampler=sampler, direction="maximize")
    best: tuple[float, list[Row]] | None = None
    num_served = 0
    for number in range(num_trials):
        trial = study.ask()
        rows = rows_of(_streams(trial, limits), limits)
        outcome = duel.outcome(rows)
        if outcome is None:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            num_served += 1
            study.tell(trial, outcome.score)
            if best is None or outcome.score > best[0]:
                best = outcome.score, rows
        watcher(number + 1)
    if best is None:
        raise InputError(f"none of {num_trials:,} traces was served to its end by both")
    small, num_tried = smaller(duel, best[1], best[0])
    found = duel.outcome(small)
    assert found is not None  # noqa: S101 - `smaller` has seen it served
    return Found(small, found, num_served, num_tried, len(best[1]), best[0])


def _streams(trial: Any, limits: TraceLimits) -> Sequence[RequestStream]:
    return [_stream(trial, "abc"[place], limits) for place in range(NUM_STREAMS)]


def _stream(trial: Any, name: str, limits: TraceLimits) -> RequestStream:
    def whole(what: str, low: int, high: int) -> int:
        return int(trial.suggest_int(f"{name}.{what}", low, max(low, high), log=True))

    prompt = whole("prompt_tokens", _SHORTEST_PROMPT, limits.most_prompt)
    share = trial.suggest_categorical(f"{name}.shared", _SHARES)
    priority = 0
    if limits.has_priorities:
        priority = trial.suggest_categorical(f"{name}.priority", _PRIORITIES)
    return RequestStream(
        num_requests=whole("num_requests", 1, limits.most_requests),
        begin=trial.suggest_float(f"{name}.begin", 0.0, _MOST_BEGIN),
        gap=trial.suggest_float(f"{name}.gap", *_GAPS, log=True),
        prompt_tokens=prompt,
        shared_tokens=min(int(share * prompt), prompt - 1),
        output_tokens=whole("output_tokens", 1, limits.most_output),
        priority=priority,
    )

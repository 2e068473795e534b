"""The ladders of causes between two runs.

The first rung of a ladder is BEFORE, simulated. Each further rung takes over one more thing from
AFTER, and the last one is AFTER, simulated. What a rung changes is what its cause is worth:

    rung                        TTFT    TPOT
    BEFORE, simulated           60 ms   10.0 ms
    + AFTER's traffic           60      10.0         traffic: nothing
    + AFTER's KV pool          900       9.5         KV pool: +840 ms, -0.5 ms
    + AFTER's step times       950      11.0         decode steps: +50 ms, +1.5 ms

A queue that grows because steps are slow is thus counted as the slow steps' doing. But the order
matters: slow steps cost more while the pool is small. So there is a second ladder, from AFTER back
to BEFORE, in the same order of causes. A cause is worth the mean of both, give or take their
standard deviation. A ladder counts the less, the more of its steps are unlike every recorded one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from calibrate.explain.differences import differences
from calibrate.explain.parted import Parted, first_parting
from calibrate.explain.parts import ttft_parts_ms
from calibrate.explain.run import Run
from sim.core.errors import InputError
from sim.core.packed import Line
from sim.metrics.latencies import finished_mask, request_latencies
from sim.runlog import RunLog

LATENCIES = ("ttft_ms", "tpot_ms", "e2e_latency_ms")
# Their means, and the slowest first tokens.
FIGURES = (*LATENCIES, "p99_ttft_ms")
# As if this share of the steps of every rung were extrapolated, too.
_WELL_KNOWN_PCT = 10.0
# A cause that changes every mean by less than this share is not listed.
_NOTHING = 1e-3

# Means below this are 0.
_TINY_MS = 1e-6

Means = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Cause:
    """One difference between the two runs, and what it is worth.

    Attributes:
        name: what is different.
        detail: how it was before, and how it is now.
        effect_ms: of each of `FIGURES`: how much longer it is because of the cause.
        give_or_take_ms: the standard deviation of both ladders.
        unlike_pct: share of the simulated steps that are unlike every recorded step, so that their
            times are extrapolated, on the ladder with fewer of them.
    """

    name: str
    detail: str
    effect_ms: Means
    give_or_take_ms: Means
    unlike_pct: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why AFTER differs from BEFORE.

    Attributes:
        before, after: both runs.
        before_ms, after_ms: each of `FIGURES`; measured, or simulated of a scenario.
        causes: those that change something, the largest effect on TTFT and TPOT first.
        without_effect: names of those that change nothing.
        unexplained_ms: their differences less the effects of `causes`.
        parts_ms: where the mean TTFT of both goes, see `ttft_parts_ms`.
        num_finished: requests of both runs that finished, when simulated.
        parted: where the two runs first do different things; None: they never do.
    """

    before: Run
    after: Run
    before_ms: Means
    after_ms: Means
    causes: Sequence[Cause]
    without_effect: Sequence[str]
    unexplained_ms: Means
    parts_ms: tuple[Means, Means]
    num_finished: tuple[int, int]
    parted: Parted | None


class _Rung(NamedTuple):
    """A cause on one ladder: its effect, and the share of steps with extrapolated times."""

    detail: str
    effect_ms: Means
    unlike_pct: float


class _Ladder(NamedTuple):
    """From one run to the other.

    Attributes:
        start: the first run, simulated.
        steps: what it computed.
        rungs: by the name of the cause.
    """

    start: RunLog
    steps: list[Line]
    rungs: Mapping[str, _Rung]

    @property
    def num_finished(self) -> int:
        """Requests of the first run that finished."""
        return int(finished_mask(self.start.requests).sum())


def explain(before: Run, after: Run) -> Explanation:
    """Put each difference into a simulation, one after another, there and back.

    Raises:
        InputError: a step has no time, or no request of a run finished.
    """
    there, back = _climbed(before, after), _climbed(after, before)
    causes = []
    for name in {**there.rungs, **back.rungs}:
        # Settings may go together in one direction only: then the other one says the same.
        up = there.rungs.get(name) or _mirrored(back.rungs[name])
        causes.append(_cause(name, up, back.rungs.get(name) or _mirrored(up)))
    logs = (before.log or there.start, after.log or back.start)
    before_ms, after_ms = figures_ms(logs[0], before.name), figures_ms(logs[1], after.name)
    worth = [cause for cause in causes if _matters(cause, before_ms)]
    worth.sort(key=lambda cause: -_size(cause, before_ms))
    return Explanation(
        before=before,
        after=after,
        before_ms=before_ms,
        after_ms=after_ms,
        causes=worth,
        without_effect=[cause.name for cause in causes if cause not in worth],
        unexplained_ms={
            key: after_ms[key] - before_ms[key] - sum(cause.effect_ms[key] for cause in worth)
            for key in FIGURES
        },
        parts_ms=(ttft_parts_ms(logs[0]), ttft_parts_ms(logs[1])),
        num_finished=(there.num_finished, back.num_finished),
        parted=first_parting(
            (before.steps or there.steps, before.place), (after.steps or back.steps, after.place)
        ),
    )


def _climbed(start: Run, end: Run) -> _Ladder:
    setup = start.setup
    first, steps = setup.simulated_with_steps()
    here_ms = figures_ms(first, start.name)
    rungs: dict[str, _Rung] = {}
    for name, detail, change in differences(start, end):
        setup = change(setup)
        log, unlike_pct = setup.simulated()
        next_ms = figures_ms(log, f"{start.name} with {name} of {end.name}")
        effect_ms = {key: next_ms[key] - here_ms[key] for key in FIGURES}
        here_ms = next_ms
        rungs[name] = _Rung(detail, effect_ms, unlike_pct)
    return _Ladder(first, steps, rungs)


def _cause(name: str, there: _Rung, back: _Rung) -> Cause:
    """Both ladders' effects as one."""
    weights = [1 / (_WELL_KNOWN_PCT + rung.unlike_pct) for rung in (there, back)]
    share = weights[0] / sum(weights)
    up = there.effect_ms
    down = {key: -back.effect_ms[key] for key in FIGURES}
    return Cause(
        name=name,
        detail=there.detail,
        effect_ms={key: share * up[key] + (1 - share) * down[key] for key in FIGURES},
        give_or_take_ms={
            key: abs(up[key] - down[key]) * (share * (1 - share)) ** 0.5 for key in FIGURES
        },
        unlike_pct=min(there.unlike_pct, back.unlike_pct),
    )


def _mirrored(rung: _Rung) -> _Rung:
    return rung._replace(effect_ms={key: -rung.effect_ms[key] for key in FIGURES})


def figures_ms(log: RunLog, where: str) -> dict[str, float]:
    """`FIGURES` over finished requests, without warm-up; `where` is the run's file.

    Raises:
        InputError: no request has one of them.
    """
    latencies = request_latencies(log.requests)
    counts = finished_mask(log.requests) & (log.requests.warm_up == 0)
    found: dict[str, float] = {}
    for name in LATENCIES:
        values = getattr(latencies, name)[counts]
        known = values[~np.isnan(values)]
        if not len(known):
            what = name.removesuffix("_ms").upper()
            raise InputError(f"{where}: no finished request has a {what}: nothing to explain")
        found[name] = float(known.mean())
        if name == "ttft_ms":
            found["p99_ttft_ms"] = float(np.percentile(known, 99))
    return found


def _size(cause: Cause, before_ms: Means) -> float:
    """How large its effects are, as shares of the means before.

    TTFT and TPOT count alike, because a cause may lengthen one and shorten the other.
    """
    return sum(
        abs(cause.effect_ms[key]) / max(before_ms[key], _TINY_MS) for key in ("ttft_ms", "tpot_ms")
    )


def _matters(cause: Cause, before_ms: Means) -> bool:
    return any(abs(cause.effect_ms[key]) > _NOTHING * before_ms[key] for key in LATENCIES)

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

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from calibrate.explain.parted import Parted, first_parting
from calibrate.explain.run import Run, Setup
from calibrate.explain.words import (
    decode_words,
    gap_words,
    prefill_words,
    stall_words,
    traffic_words,
)
from sim.core.errors import InputError
from sim.metrics.latencies import finished_mask, request_latencies
from sim.runlog import RunLog
from sim.runlog.json_lines import Line

LATENCIES = ("ttft_ms", "tpot_ms", "e2e_latency_ms")
# Their means, and the slowest first tokens.
FIGURES = (*LATENCIES, "p99_ttft_ms")
# Keys of a scheduler's section that say nothing but how large its KV pool is.
_POOL_KEYS = frozenset({
    "num_gpu_blocks_override", "gpu_memory_utilization", "max_total_tokens", "mem_fraction_static",
})  # fmt: skip
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
        start_ms: `FIGURES` of the first run, simulated.
        steps: what the first run computed, simulated.
        rungs: by the name of the cause.
        num_finished: requests of the first run that finished.
    """

    start_ms: Means
    steps: list[Line]
    rungs: Mapping[str, _Rung]
    num_finished: int


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
    before_ms = there.start_ms if before.log is None else figures_ms(before.log, before.name)
    after_ms = back.start_ms if after.log is None else figures_ms(after.log, after.name)
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
        num_finished=(there.num_finished, back.num_finished),
        parted=first_parting(before.steps or there.steps, after.steps or back.steps),
    )


def _climbed(start: Run, end: Run) -> _Ladder:
    setup = start.setup
    log, steps = setup.simulated_with_steps()
    start_ms = here_ms = figures_ms(log, start.name)
    num_finished = int(finished_mask(log.requests).sum())
    rungs: dict[str, _Rung] = {}
    for name, detail, change in _differences(start, end):
        setup = change(setup)
        log, unlike_pct = setup.simulated()
        next_ms = figures_ms(log, f"{start.name} with {name} of {end.name}")
        effect_ms = {key: next_ms[key] - here_ms[key] for key in FIGURES}
        here_ms = next_ms
        rungs[name] = _Rung(detail, effect_ms, unlike_pct)
    return _Ladder(start_ms, steps, rungs, num_finished)


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


_Change = Callable[[Setup], Setup]


def _differences(before: Run, after: Run) -> Iterator[tuple[str, str, _Change]]:
    """Each difference: its name, how it was and is, and the change that takes it over."""
    words = traffic_words(before.setup.workload, after.setup.workload)
    yield "traffic", words, lambda setup: replace(setup, workload=after.setup.workload)
    yield from _settings(before, after)
    yield from _fleet(before, after)
    if before.setup.servers.host != after.setup.servers.host:
        host, number = after.setup.servers.host, after.setup.servers.num_front_ends
        yield (
            "front end",
            "what happens to a request before and after the engine",
            lambda setup: replace(
                setup, servers=setup.servers._replace(host=host, num_front_ends=number)
            ),
        )
    yield from _step_times(before, after)


def _step_times(before: Run, after: Run) -> Iterator[tuple[str, str, _Change]]:
    """The three times of a step, and the stalls."""
    of_after = after.setup
    yield (
        "prefill steps",
        prefill_words(before, after),
        lambda setup: replace(setup, prefill=of_after.prefill),
    )
    yield (
        "decode steps",
        decode_words(before, after),
        lambda setup: replace(setup, decode=of_after.decode),
    )
    yield (
        "between steps",
        gap_words(before, after),
        lambda setup: replace(setup, gaps=of_after.gaps),
    )
    if before.setup.stalls or of_after.stalls:
        words = " -> ".join(stall_words(run.setup.stalls) for run in (before, after))
        yield "stalls", words, lambda setup: replace(setup, stalls=of_after.stalls)


def _fleet(before: Run, after: Run) -> Iterator[tuple[str, str, _Change]]:
    """How many servers there are, and which one a request goes to."""
    old, new = before.setup, after.setup
    sizes = [(setup.num_servers, setup.num_ranks, setup.autoscale) for setup in (old, new)]
    if sizes[0] != sizes[1]:
        yield (
            "servers",
            f"{_fleet_words(old)} -> {_fleet_words(new)}",
            lambda setup: replace(
                setup,
                num_servers=new.num_servers,
                num_ranks=new.num_ranks,
                autoscale=new.autoscale,
            ),
        )
    if before.scenario.router != after.scenario.router:
        yield (
            "router",
            f"{_router_words(before)} -> {_router_words(after)}",
            lambda setup: replace(setup, router=new.router),
        )


def _fleet_words(setup: Setup) -> str:
    ranks = f" of {setup.num_ranks} ranks" if setup.num_ranks > 1 else ""
    most = "up to " if setup.autoscale is not None else ""
    return f"{most}{setup.num_servers}{ranks}"


def _router_words(run: Run) -> str:
    router = run.scenario.router
    return router if isinstance(router, str) else str(getattr(router, "kind", router))


def _settings(before: Run, after: Run) -> Iterator[tuple[str, str, _Change]]:
    """The settings of the scheduler that differ, one after another, and the size of its pool."""
    old, new = before.scenario.scheduler, after.scenario.scheduler
    if type(old) is not type(new):
        config = after.setup.servers.config
        detail = f"{old.family} -> {new.family}, and all settings"
        yield "scheduler", detail, lambda setup: _with_config(setup, config)
        return
    names = [name for name in type(old).model_fields if getattr(old, name) != getattr(new, name)]
    taken: dict[str, Any] = {name: getattr(new, name) for name in names if name in _POOL_KEYS}
    pool_tokens = after.pool_tokens
    waiting: list[tuple[str, str]] = []
    if before.pool_tokens != pool_tokens:
        waiting.append(("KV pool", f"{before.pool_tokens:,} -> {pool_tokens:,} tokens"))
    for name in (None, *(name for name in names if name not in _POOL_KEYS)):
        if name is not None:
            waiting.append((name, f"{getattr(old, name)} -> {getattr(new, name)}"))
            taken[name] = getattr(new, name)
        try:
            config = before.config_with(taken, pool_tokens)
        except InputError:
            continue  # It goes only together with a setting that follows.
        if waiting:
            yield (*_joined(waiting), _config_change(config))
            waiting.clear()
    if waiting:
        yield (*_joined(waiting), _config_change(after.setup.servers.config))


def _joined(settings: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Settings that go together as one cause: their names and their values."""
    return ", ".join(name for name, _ in settings), ", ".join(words for _, words in settings)


def _config_change(config: Any) -> _Change:
    return lambda setup: _with_config(setup, config)


def _with_config(setup: Setup, config: Any) -> Setup:
    return replace(setup, servers=setup.servers._replace(config=config))

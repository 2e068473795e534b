"""An explanation as a table, sentences, and plain JSON values."""

from collections.abc import Iterator
from typing import Any

from calibrate.explain.causes import FIGURES, LATENCIES, Cause, Explanation, Means
from calibrate.explain.parted import Parted
from sim.core.units import NS_PER_S
from sim.metrics.registry import E2E_LATENCY, PHASES, TPOT, TTFT
from sim.tables.table import Table, columns_of, number

_HEADINGS = (
    *(f"mean {latency.heading} ms" for latency in (TTFT, TPOT, E2E_LATENCY)),
    f"p99 {TTFT.heading} ms",
)
# Runs whose latencies differ by less may be equal.
_EQUAL_PCT = 4.0
# A cause with a larger share of extrapolated steps, or of doubt in its effect, is doubtful.
_UNLIKE_PCT, _DOUBT = 10.0, 1 / 3


def table(explanation: Explanation) -> Table:
    """Both runs, every cause with its effect, and what is left."""
    rows = [
        (f"before: {explanation.before.name}", *_means(explanation.before_ms)),
        (f"after: {explanation.after.name}", *_means(explanation.after_ms)),
        *((cause.name, *_effects(cause)) for cause in explanation.causes),
        ("not explained", *(signed(explanation.unexplained_ms[key]) for key in FIGURES)),
    ]
    return Table(columns_of(("",), _HEADINGS), rows)


def parts_table(explanation: Explanation) -> Table:
    """Where the mean TTFT goes in both runs."""
    before_ms, after_ms = explanation.parts_ms
    rows = []
    for name, phase in PHASES.items():
        old, new = before_ms.get(name), after_ms.get(name)
        if old is not None or new is not None:
            change = signed((new or 0.0) - (old or 0.0))
            rows.append(
                (phase.heading, *("" if ms is None else number(ms) for ms in (old, new)), change)
            )
    return Table(columns_of(("part of TTFT",), ("before ms", "after ms", "change ms")), rows)


def _means(means: Means) -> tuple[str, ...]:
    return tuple(number(means[key]) for key in FIGURES)


def _effects(cause: Cause) -> Iterator[str]:
    for key in FIGURES:
        yield f"{signed(cause.effect_ms[key])} ± {number(cause.give_or_take_ms[key])}"


def signed(value: float) -> str:
    """The number with its sign."""
    return ("+" if value > 0 else "") + number(value)


def sentences(explanation: Explanation) -> Iterator[str]:
    """What each cause is, where the runs part, what it comes to, and what would tell more."""
    for cause in explanation.causes:
        yield f"{cause.name}: {cause.detail}"
    if explanation.without_effect:
        yield f"change every mean by less than 0.1 %: {', '.join(explanation.without_effect)}"
    finished = explanation.num_finished
    if finished[0] != finished[1]:
        yield (
            f"{finished[0]:,} requests finish before and {finished[1]:,} after, as simulated: means"
            " are of those that finish"
        )
    yield parting_words(explanation.parted)
    yield verdict(explanation)
    yield from next_measurement(explanation)


def parting_words(parted: Parted | None) -> str:
    if parted is None:
        return "Both runs compute the same in every step."
    before, after = (
        f"{words} ({'-' if when is None else f'{when / NS_PER_S:.3f} s'})"
        for words, when in ((parted.before, parted.before_ns), (parted.after, parted.after_ns))
    )
    pool = f" of {parted.pool}" if parted.pool else ""
    where = f"step {parted.step:,} of server {parted.server}{pool}"
    return f"They part at {where}: {before} before, {after} after."


def verdict(explanation: Explanation) -> str:
    """How much TTFT and TPOT change, and how much of it the largest cause has."""
    named = (("TTFT", "ttft_ms"), ("TPOT", "tpot_ms"))
    total = " and ".join(_change(name, explanation, key) for name, key in named)
    if not explanation.causes:
        return f"{total}, and no difference between the runs was found."
    first = explanation.causes[0]
    effects = " and ".join(
        f"{signed(first.effect_ms[key])} ± {number(first.give_or_take_ms[key])} ms"
        for _, key in named
    )
    return f"{total}. The largest cause is {first.name}: {effects}."


def _change(name: str, explanation: Explanation, key: str) -> str:
    before, after = explanation.before_ms[key], explanation.after_ms[key]
    share = f" ({100 * (after / before - 1):+.0f} %)" if before > 0 else ""
    return f"{name} changes by {signed(after - before)} ms{share}"


def next_measurement(explanation: Explanation) -> Iterator[str]:
    """What to measure next, if the answer is doubtful."""
    before, after = explanation.before_ms, explanation.after_ms
    if all(abs(after[key] - before[key]) <= _EQUAL_PCT / 100 * before[key] for key in LATENCIES):
        yield (
            f"Runs that differ by less than {_EQUAL_PCT:.0f} % may be equal."
            " To know more, serve both again."
        )
        return
    for cause in explanation.causes[:1]:
        key = max(LATENCIES, key=lambda name: abs(cause.effect_ms[name]) / (before[name] or 1.0))
        if cause.unlike_pct > _UNLIKE_PCT:
            why = f"{cause.unlike_pct:.0f} % of the steps are unlike all that were measured"
        elif cause.give_or_take_ms[key] > _DOUBT * abs(cause.effect_ms[key]):
            why = "how much it is worth depends on the other causes"
        else:
            continue
        yield f"{cause.name}: {why}. To know more, serve BEFORE again with only this changed."


def document(explanation: Explanation) -> dict[str, Any]:
    """The document of docs/how-to/explain.md; equal explanations give equal documents."""
    parted = explanation.parted
    return {
        "before": {"name": explanation.before.name, **explanation.before_ms},
        "after": {"name": explanation.after.name, **explanation.after_ms},
        "causes": [
            {
                "name": cause.name,
                "detail": cause.detail,
                "effect_ms": dict(cause.effect_ms),
                "give_or_take_ms": dict(cause.give_or_take_ms),
                "unlike_pct": cause.unlike_pct,
            }
            for cause in explanation.causes
        ],
        "without_effect": list(explanation.without_effect),
        "finished": list(explanation.num_finished),
        "ttft_parts_ms": {
            "before": dict(explanation.parts_ms[0]),
            "after": dict(explanation.parts_ms[1]),
        },
        "unexplained_ms": dict(explanation.unexplained_ms),
        "parted": None
        if parted is None
        else {
            "pool": parted.pool,
            "server": parted.server,
            "step": parted.step,
            "before_ns": parted.before_ns,
            "after_ns": parted.after_ns,
            "before": parted.before,
            "after": parted.after,
        },
        "verdict": verdict(explanation),
        "to_know_more": list(next_measurement(explanation)),
    }

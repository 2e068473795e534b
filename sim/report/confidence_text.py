"""How far to believe an answer, and the sizes of its KV pools, in words."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sim.metrics.summary import Summary
from sim.tables.table import UNDEFINED, Table, columns_of, counted, number, number_as, printable

Confidence = Mapping[str, Any]


def confidence_lines(confidence: Confidence) -> list[str]:
    """What step times rest on, and between what the means of real servers would be."""
    return [*basis_lines([confidence]), *interval_lines(confidence)]


def basis_lines(found: Sequence[Confidence]) -> list[str]:
    """What the step times of some answers rest on, each once."""
    lines = (_basis(each) for each in found if each.get("basis"))
    return list(dict.fromkeys(lines))


def _basis(confidence: Confidence) -> str:
    parts = [confidence[name] for name in ("basis", "source") if confidence.get(name)]
    return printable(f"step times: {': '.join(parts)}")


def interval_lines(confidence: Confidence) -> list[str]:
    """The intervals and the nearest measured servers, or why there is none; perhaps nothing."""
    ends = [
        f"{label} {_ends(interval, factor)}{unit}"
        for name, label, unit, factor in _INTERVALS
        if (interval := confidence.get(name)) is not None
    ]
    if ends:
        level = number_as(".0f", confidence.get("level_pct"))
        near = [f"    {nearest_line(confidence)}"] if confidence.get("nearest") else []
        return [f"{level} % interval: {', '.join(ends)}", *near, *_outside(confidence)]
    reason = confidence.get("no_interval")
    return [printable(f"no interval: {reason}")] if reason else []


def _outside(confidence: Confidence) -> Iterator[str]:
    outside = confidence.get("outside", {})
    for name, label, _, _ in _INTERVALS:
        if name in outside:
            where = f"{label} is {outside[name]} its interval"
            is_faster = (outside[name] == "above") != (name == "output_throughput")
            how = "faster" if is_faster else "slower"
            yield printable(f"    the simulated {where}: nearly all such servers were {how}")


def nearest_line(confidence: Confidence, *, load: bool = True) -> str:
    """Which measured servers are nearest, and in what the simulated one differs from them."""
    nearest = confidence["nearest"][0]
    words = (
        f"nearest of {confidence.get('measured', 0):,} measured servers: {nearest['servers']:,} of"
        f" {nearest['model']}, {nearest['weight_bits']}-bit weights, {nearest['gpu']},"
        f" {nearest['engine']} {nearest['version']} ({counted(nearest['num_gpus'], 'GPU')}"
    )
    if load:
        lengths = f"{nearest['prompt_tokens']:,}/{nearest['output_tokens']:,} tokens"
        words += f", {lengths}, {nearest['concurrency']:,} at a time"
    differs = ", ".join(_WORDS.get(name, name) for name in nearest["differs"])
    return printable(f"{words}); here another {differs}" if differs else f"{words})")


def serving_line(confidence: Confidence) -> str:
    """What is known before a request comes, on one line."""
    near = [nearest_line(confidence, load=False)] if confidence.get("nearest") else []
    return "; ".join([*basis_lines([confidence]), *near])


def intervals_table(
    keys: Sequence[str], rows: Sequence[tuple[Sequence[str], Confidence]]
) -> Table | None:
    """The intervals of several answers, each with the cells of its keys; None: there are none."""
    shown = [one for one in _INTERVALS if any(each.get(one[0]) for _, each in rows)]
    known = [each for _, each in rows if any(each.get(one[0]) for one in shown)]
    if not known:
        return None
    cells = [
        [*named, *(_ends(each.get(name), factor) for name, _, _, factor in shown)]
        for named, each in rows
    ]
    headings = [f"{label}{unit.replace(' ms', ' (ms)')}" for _, label, unit, _ in shown]
    level = number_as(".0f", known[0].get("level_pct"))
    note = nearest_line(known[0]) if known[0].get("nearest") else ""
    title = f"{level} % intervals of a real server's means"
    return Table(columns_of(keys, headings), cells, title, f"First row: {note}." if note else "")


def interval_rows(found: Sequence[Confidence]) -> list[list[str]]:
    """A row for each mean that has an interval in any of some answers: its label, and the ends."""
    shown = [one for one in _INTERVALS if any(each.get(one[0]) for each in found)]
    level = next((number_as(".0f", each["level_pct"]) for each in found if "level_pct" in each), "")
    return [
        [f"{label}{unit}, {level} % interval", *(_ends(each.get(name), factor) for each in found)]
        for name, label, unit, factor in shown
    ]


def _ends(interval: Mapping[str, float] | None, factor: float) -> str:
    if interval is None:
        return UNDEFINED
    low, high = (number(factor * interval[end]) for end in ("low", "high"))
    expected = interval.get("expected")
    middle = "" if expected is None else f" (expected {number(factor * expected)})"
    return f"{low} to {high}{middle}"


# Name, label, unit, and what a value is multiplied by.
_INTERVALS = (
    ("mean_ttft_ms", "mean TTFT", " ms", 1),
    ("mean_tpot_ms", "mean TPOT", " ms", 1),
    ("output_throughput", "output tokens/s", "", 1),
    ("slo_attainment", "SLO met", " %", 100),
)
_WORDS = {
    "version": "engine version",
    "gpu": "GPU",
    "weight_bits": "weight format",
    "num_gpus": "number of GPUs",
    "prompt_tokens": "prompt length",
    "output_tokens": "answer length",
    "concurrency": "load",
}


def kv_pool_lines(summary: Summary) -> list[str]:
    """The size of each KV pool, in the engine's words, and what it follows from."""
    pools = {f"{name}: ": pool for name, pool in summary.get("pools", {}).items()} or {"": summary}
    found = {name: pool["kv_pool"] for name, pool in pools.items() if "kv_pool" in pool}
    return [printable(f"{name}{_pool_in_words(pool)}") for name, pool in found.items()]


def _pool_in_words(pool: Mapping[str, Any]) -> str:
    parts = [f"{pool['pages']:,} pages of {pool['page_size']:,}"]
    if pool["gib_per_gpu"] is not None:
        parts.append(f"{number(pool['gib_per_gpu'])} GiB of each GPU")
    if pool["ranks"] > 1:
        parts.append(f"each of {pool['ranks']} ranks")
    return f"{pool['printed']} ({', '.join(parts)}): {pool['source']}"

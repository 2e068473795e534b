"""LLMServingSim's profiles: meta.yaml, and a folder tpN for each degree N of tensor parallelism.

The format has version 2 (profiler 1.0.0), the times are in microseconds. A folder tpN has times by
new tokens (dense.csv), by rows with logits (per_sequence.csv), of attention by chunk, cached
tokens, decode rows and context (attention.csv), and of mixtures of experts (moe.csv). skew_fit.csv
corrects attention for unequal contexts.
"""

from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from typing import NamedTuple

from sim.core.errors import InputError, unknown_name
from sim.core.units import NS_PER_US
from sim.latency.curves import Curve, bracket, weighted_sum
from sim.latency.features import StepFeatures
from sim.latency.layers.attention import (
    Alphas,
    DecodeAttention,
    MixedAttention,
    Plane,
    PrefillAttention,
    SkewTable,
)
from sim.latency.layers.model import LayerTimes
from sim.latency.layers.servingsim_meta import NAME, SkewFit, read_meta
from sim.latency.range_counter import MeasuredSpans
from sim.tables.csv_table import CsvTable, find_table, medians, need_table

_LAYER = "attention"


class FusedAttention:
    """One layer's attention, in microseconds.

    There are two forms of tables. In the older form a call has one prefill chunk and its cached
    tokens. If a step has several chunks, its time is that of a call with the longest chunk and the
    decode rows. Each other chunk adds its time alone, less that of the table's shortest call,
    because it needs no launch of its own. In the newer form a call has all prefill tokens of a
    step. Its time depends on their number and on the mean number of keys that they attend to.
    """

    def __init__(self, times: "AttentionGrid", skew: SkewTable | None) -> None:
        self.prefill = PrefillAttention(times.prefill, by_key=times.by_key)
        self.decode = DecodeAttention(times.decode)
        self.mixed = MixedAttention(self.prefill, self.decode, times.mixed)
        self.by_key = times.by_key
        self._skew = skew

    def decode_curve(self, rows: int) -> Curve:
        return self.decode.curve(rows)

    def decode_alphas(self, rows: int) -> Alphas | None:
        return None if self._skew is None else self._skew.alphas(rows)

    def prefill_time(self, step: StepFeatures) -> float:
        chunks = step.prefill_chunks()
        new, cached = chunks[0]
        others_us = 0.0
        if self.by_key:
            new = step.num_prefill_tokens
            cached_or_keys = step.prefill_attention / (2 * new)
        else:
            cached_or_keys = cached
            for other in chunks[1:]:
                us = self.prefill.at(*other) - self.prefill.shortest
                others_us += max(0.0, us)
        if not step.num_decode_rows:
            return self.prefill.at(new, cached_or_keys) + others_us
        return self._mixed_us(step, (new, cached_or_keys), cached) + others_us

    def _mixed_us(self, step: StepFeatures, chunk: tuple[float, float], cached: float) -> float:
        rows, longest = step.num_decode_rows, step.max_decode_context_tokens
        mean = step.num_decode_context_tokens / rows - 1.0
        blend = self.mixed.blend(*chunk, rows)
        mean_us = blend.at(mean)
        if self._skew is None or rows == 1 or not longest:
            return mean_us
        most, least = longest - 1.0, max(step.min_decode_context_tokens - 1.0, 0.0)
        alphas = self._skew.alphas(rows, chunk[0], cached)
        return max(alphas.corrected(mean, most, least, (mean_us, blend.at(most))), 0.0)


class AttentionGrid(NamedTuple):
    """The times of an attention.csv, by kind of call.

    Attributes:
        prefill: by chunk, then by cached tokens (or keys).
        decode: by rows, then by context.
        mixed: by chunk, rows, cached tokens (or keys), context.
        by_key: the table has the mean number of keys in place of the cached tokens.
    """

    prefill: Plane
    decode: Plane
    mixed: Mapping[float, Mapping[float, Plane]]
    by_key: bool


def attention_grid(table: CsvTable) -> AttentionGrid:
    """Divide an attention.csv into calls with prefill only, with decode only, and with both.

    Decode calls with several new tokens per row (speculative decoding) are left out.
    """
    by_key = "prefill_key" in table
    prefill: dict[float, dict[float, float]] = {}
    decode: dict[float, dict[float, float]] = {}
    mixed: dict[float, dict[float, dict[float, dict[float, float]]]] = {}
    for (chunk, cached_or_keys, rows, context), us in medians(_calls(table, by_key=by_key)).items():
        if not chunk:
            decode.setdefault(rows, {})[context] = us
        elif not rows:
            prefill.setdefault(chunk, {})[cached_or_keys] = us
        else:
            sheet = mixed.setdefault(chunk, {}).setdefault(rows, {})
            sheet.setdefault(cached_or_keys, {})[context] = us
    for times, what in ((prefill, "prefill chunks"), (decode, "decode rows")):
        if not times:
            raise InputError(f"{table.path}: has no row with {what} only")
    return AttentionGrid(prefill, decode, mixed, by_key)


def check_attention_only(table: CsvTable) -> None:
    """Raise InputError if a row is of another layer than plain attention."""
    for row, layer in enumerate(table.texts("layer") if "layer" in table else ()):
        if layer != _LAYER:
            raise table.error(row, "layer", f"unknown layer {layer!r} (known: {_LAYER})")


def _calls(
    table: CsvTable, *, by_key: bool
) -> Iterator[tuple[tuple[float, float, float, float], float]]:
    check_attention_only(table)
    names = "prefill_chunk", "prefill_key" if by_key else "kv_prefill", "n_decode", "kv_decode"
    keys = zip(*map(table.numbers, names), strict=True)
    lens = table.numbers("decode_q_len") if "decode_q_len" in table else None
    for row, (key, us) in enumerate(zip(keys, table.numbers("time_us"), strict=True)):
        if not key[0] and not key[2]:
            raise table.error(row, "n_decode", "a call needs a prefill chunk or decode rows")
        if lens is None or lens[row] == 1:
            yield key, us


# How often a step runs each layer: in the whole model, or in each of its blocks.
_ONCE: Mapping[str, int] = {"embedding": 1, "final_layernorm": 1}
_HEAD: Mapping[str, int] = {"lm_head": 1, "sampler": 1}
_MLP: Mapping[str, int] = {"gate_up_proj": 1, "act_fn": 1, "down_proj": 1}
# `qk_norm` is the norm of the queries and that of the keys together.
_OPTIONAL: Mapping[str, int] = {"rotary_emb": 1, "qk_norm": 1}
_BLOCK: Mapping[str, int] = {"layernorm": 2, "qkv_proj": 1, "o_proj": 1}
_SKEW_KEY = ("n_label", "skew_rate_label", "kv_big_label", "kp_label")


def is_serving_sim(folder: Path) -> bool:
    return (folder / NAME).is_file()


def read_serving_sim(folder: Path, tp: int, dp: int = 1) -> LayerTimes:
    """Read a profile for one degree of tensor parallelism, and of data parallelism of attention."""
    meta = read_meta(folder / NAME, tp)
    tables = folder / f"tp{tp}"
    if not tables.is_dir():
        known = ", ".join(sorted(path.name for path in folder.glob("tp*") if path.is_dir()))
        raise InputError(f"{tables}: no such folder (there are: {known or 'none'})")
    experts = _experts(tables, folder, tp * dp)
    once, block = _dense(tables, experts if tp * dp == 1 else None, has_experts=bool(experts))
    head = _head(tables)
    skew = None if meta.skew is None else _skew(need_table(tables, "skew_fit.csv"), meta.skew)
    attention = FusedAttention(attention_grid(need_table(tables, "attention.csv")), skew)
    return LayerTimes(
        source=meta.source,
        limits=_measured(once, head, attention).limits(),
        unit_ns=NS_PER_US,
        once=once,
        layer=block,
        head=head,
        attention=attention,
        model=meta.model,
        experts=None if tp * dp == 1 else experts,
    )


def _dense(tables: Path, experts: Curve | None, *, has_experts: bool) -> tuple[Curve, Curve]:
    """What runs once a step, and what runs once a layer; over new tokens, without attention.

    `experts` are those of a layer, if each device has all of them; they may be spread instead.
    """
    table = need_table(tables, "dense.csv")
    dense = _curves(table, "tokens", {**_ONCE, **_BLOCK, **_MLP, **_OPTIONAL})
    _check_there(table, dense, {**_ONCE, **_BLOCK})
    _check_mlp(table, dense, has_experts=has_experts)
    counts = {**_BLOCK, **_MLP, **_OPTIONAL}
    block = [(count, dense[name]) for name, count in counts.items() if name in dense]
    if experts is not None:
        block.append((1, experts))
    return weighted_sum((n, dense[name]) for name, n in _ONCE.items()), weighted_sum(block)


def _head(tables: Path) -> Curve:
    """The output head, over rows with logits."""
    table = need_table(tables, "per_sequence.csv")
    head = _curves(table, "sequences", _HEAD)
    _check_there(table, head, _HEAD)
    return weighted_sum((n, head[name]) for name, n in _HEAD.items())


def _curves(table: CsvTable, size: str, known: Mapping[str, int]) -> dict[str, Curve]:
    """The times of each layer, over a size."""
    layers = table.texts("layer")
    sizes, times = table.numbers(size, low=1), table.numbers("time_us")
    for row, layer in enumerate(layers):
        if layer not in known:
            raise table.error(row, "layer", unknown_name("layer", layer, known))
    by_layer: dict[str, dict[float, float]] = {}
    points = zip(zip(layers, sizes, strict=True), times, strict=True)
    for (layer, at), us in medians(points).items():
        by_layer.setdefault(layer, {})[at] = us
    return {layer: Curve.through(points_of) for layer, points_of in by_layer.items()}


def _experts(tables: Path, folder: Path, num_devices: int) -> Curve | None:
    """One layer's experts, spread over the devices. The table of all experts may be in tp1 only."""
    path = find_table(tables, "moe.csv") or find_table(folder / "tp1", "moe.csv")
    return None if path is None else experts_curve(CsvTable(path), num_devices)


def _check_mlp(table: CsvTable, dense: Mapping[str, Curve], *, has_experts: bool) -> None:
    """Raise InputError unless a table has either a dense MLP or experts."""
    if not has_experts:
        _check_there(table, dense, _MLP)
    elif found := [name for name in _MLP if name in dense]:
        raise InputError(
            f"{table.path}: layer: {found[0]} is here although there is a moe.csv: the table does"
            " not say how many layers have experts"
        )


def _check_there(table: CsvTable, found: Mapping[str, Curve], needed: Mapping[str, int]) -> None:
    missing = [name for name in needed if name not in found]
    if missing:
        raise InputError(f"{table.path}: has no rows of layer {missing[0]}")


def _skew(table: CsvTable, fit: SkewFit) -> SkewTable:
    check_attention_only(table)
    _check_labels(table, fit)
    keys = zip(table.numbers("pc"), *map(table.texts, _SKEW_KEY), strict=True)
    alphas = table.numbers("alpha", low=-inf)
    return SkewTable(fit.axes, dict(zip(keys, alphas, strict=True)), fit.default)


def _check_labels(table: CsvTable, fit: SkewFit) -> None:
    """Raise InputError if a bin has a label that meta.yaml does not know."""
    for column, bins in zip(_SKEW_KEY, fit.axes, strict=True):
        for row, label in enumerate(table.texts(column)):
            if label not in bins.labels:
                known = ", ".join(bins.labels)
                reason = f"{label!r} is not a bin of {NAME} (they are: {known})"
                raise table.error(row, column, reason)


def _measured(once: Curve, logits: Curve, attention: FusedAttention) -> MeasuredSpans:
    prefill, decode, mixed = attention.prefill, attention.decode, attention.mixed
    low, high = decode.contexts
    return MeasuredSpans(
        tokens=(once.knots[0], once.knots[-1]),
        chunk=(prefill.chunks[0], prefill.chunks[-1]),
        cached=(0, prefill.max_cached),
        decode_rows=(decode.rows[0], decode.rows[-1]),
        mixed_rows=(1, mixed.max_rows),
        # The table does not count the new token in a context.
        context=(low + 1, high + 1),
        rows=(logits.knots[0], logits.knots[-1]),
    )


# The curve has a knot at every number of tokens below this, then only at the table's.
_DENSE_TOKENS = 4096


def experts_curve(table: CsvTable, num_devices: int = 1) -> Curve:
    """Microseconds of one layer's experts, over new tokens, on the devices they are spread over.

    The table has times by tokens and by the number of experts that at least one token uses. If each
    token chooses k of E experts evenly and independently, the expected number of these is
    E x (1 - (1 - k / E)^tokens). E is the largest number of experts in the table, k the smallest.

    Each of n devices has E / n experts, of which as large a share is used. Its experts are chosen
    as often as all experts are by tokens / n tokens.

    Rows with experts spread over several devices (`ep` above 1) are left out.
    """
    tokens, activated = table.numbers("tokens", low=1), table.numbers("activated_experts", low=1)
    times = table.numbers("time_us")
    degrees = table.numbers("ep", low=1) if "ep" in table else [1.0] * len(times)
    by_tokens: dict[float, dict[float, float]] = {}
    points = zip(zip(degrees, tokens, activated, strict=True), times, strict=True)
    for (degree, num_tokens, num_experts), us in medians(points).items():
        if degree == 1:
            by_tokens.setdefault(num_tokens, {})[num_experts] = us
    if not by_tokens:
        raise InputError(f"{table.path}: ep: has no row of 1")
    grid = {num_tokens: Curve.through(times) for num_tokens, times in by_tokens.items()}
    return _over_tokens(grid, num_devices)


def _over_tokens(grid: dict[float, Curve], num_devices: int) -> Curve:
    knots = sorted(grid)
    num_experts = max(curve.knots[-1] for curve in grid.values())
    per_token = min(curve.knots[0] for curve in grid.values())
    # Between the table's knots, the number of experts in use does not grow linearly.
    last = min(int(num_devices * knots[-1]), _DENSE_TOKENS)
    sizes = sorted({*(num_devices * knot for knot in knots), *range(int(knots[0]), last)})
    values = []
    for num_tokens in sizes:
        activated = num_experts * (1 - (1 - per_token / num_experts) ** num_tokens) / num_devices
        low, high, share = bracket(knots, max(num_tokens / num_devices, knots[0]))
        us = grid[knots[low]].at(activated)
        values.append(us + share * (grid[knots[high]].at(activated) - us))
    return Curve(sizes, values)

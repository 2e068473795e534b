"""Vidur's operator profiles: a folder with mlp.csv and attention.csv, milliseconds of one layer.

Each operator has a column `time_stats.<operator>.median`. A row of mlp.csv has the times for a
number of new tokens. A row of attention.csv has those for one prefill chunk, or for decode rows
that have equal contexts.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from sim.core.errors import InputError, unknown_name
from sim.core.units import NS_PER_MS
from sim.latency.curves import Curve
from sim.latency.features import StepFeatures
from sim.latency.layers.attention import DecodeAttention, PrefillAttention
from sim.latency.layers.model import LayerTimes
from sim.latency.range_counter import MeasuredSpans
from sim.tables.csv_table import CsvTable, find_table, medians, need_table

_PREFIX, _SUFFIX = "time_stats.", ".median"
_DEVICES = "num_tensor_parallel_workers"
_EMBEDDING = "emb"
# How often a layer runs each operator. The residual is added after attention and after the MLP.
_BLOCK = {
    "input_layernorm": 1,
    "attn_pre_proj": 1,
    "attn_rope": 1,
    "attn_post_proj": 1,
    "post_attention_layernorm": 1,
    "mlp_up_proj": 1,
    "mlp_act": 1,
    "mlp_down_proj": 1,
    "add": 2,
}
_KERNELS = ("attn_prefill", "attn_decode")
_AROUND = ("attn_input_reshape", "attn_kv_cache_save", "attn_output_reshape")


def is_vidur(folder: Path) -> bool:
    return any(find_table(folder, name) for name in ("mlp.csv", "attention.csv"))


def read_vidur(folder: Path, tp: int) -> LayerTimes:
    """Read a profile for one degree of tensor parallelism."""
    mlp, attention = need_table(folder, "mlp.csv"), need_table(folder, "attention.csv")
    rows = _rows_of(mlp, tp)
    num_tokens = mlp.numbers("num_tokens", low=1)
    _operators(mlp, (_EMBEDDING, *_BLOCK))
    once = _curve(mlp, rows, num_tokens, {_EMBEDDING: 1})
    times = SeparateAttention(attention, _rows_of(attention, tp))
    device = folder.resolve().name
    low, high = times.decode.contexts
    measured = MeasuredSpans(
        tokens=(once.knots[0], once.knots[-1]),
        chunk=(times.prefill.chunks[0], times.prefill.chunks[-1]),
        cached=(0, times.prefill.max_cached),
        decode_rows=(times.decode.rows[0], times.decode.rows[-1]),
        mixed_rows=(times.decode.rows[0], times.decode.rows[-1]),
        context=(low + 1, high + 1),
    )
    return LayerTimes(
        source=f"Vidur profile {device} (tensor parallel {tp})",
        limits=measured.limits(),
        unit_ns=NS_PER_MS,
        once=once,
        layer=_curve(mlp, rows, num_tokens, _BLOCK),
        head=None,
        attention=times,
        hidden_size=_hidden_size(mlp),
    )


class SeparateAttention:
    """One layer's attention in ms: one call for each prefill chunk, and one for all decode rows.

    A call's time includes what runs around the kernel, such as writing keys and values.
    """

    def __init__(self, table: CsvTable, rows: Sequence[int]) -> None:
        found = _operators(table, (*_AROUND, *_KERNELS))
        around = [name for name in found if name not in _KERNELS]
        prefill, decode = _by_kind(table, rows)
        chunk, cached = "prefill_chunk_size", "kv_cache_size"
        self.prefill = PrefillAttention(
            _plane(table, prefill, (chunk, cached), (*around, "attn_prefill"))
        )
        self.decode = DecodeAttention(
            _plane(table, decode, ("batch_size", cached), (*around, "attn_decode"))
        )

    def decode_curve(self, rows: int) -> Curve:
        return self.decode.curve(rows)

    def decode_alphas(self, rows: int) -> None:
        """None: the table has rows of equal context only."""

    def prefill_time(self, step: StepFeatures) -> float:
        time_ms = 0.0
        for chunk in step.prefill_chunks():
            time_ms += self.prefill.at(*chunk)
        rows = step.num_decode_rows
        if rows:
            mean = step.num_decode_context_tokens / rows - 1.0
            time_ms += self.decode.curve(rows).at(mean)
        return time_ms


def _operators(table: CsvTable, known: Sequence[str]) -> list[str]:
    """The operators that a table has medians of, in the order of `known`; InputError for others."""
    found = [
        column[len(_PREFIX) : -len(_SUFFIX)]
        for column in table.columns
        if column.startswith(_PREFIX) and column.endswith(_SUFFIX)
    ]
    for name in found:
        if name not in known:
            raise InputError(f"{table.path}:1: {unknown_name('operator', name, known)}")
    return [name for name in known if name in found]


def _rows_of(table: CsvTable, tp: int) -> list[int]:
    """The rows that were measured on this number of devices."""
    devices = table.numbers(_DEVICES, low=1)
    rows = [row for row, num_devices in enumerate(devices) if num_devices == tp]
    if not rows:
        known = ", ".join(f"{number:g}" for number in sorted(set(devices)))
        raise InputError(f"{table.path}: {_DEVICES}: has no row of {tp} (known: {known})")
    return rows


def _by_kind(table: CsvTable, rows: Sequence[int]) -> tuple[list[int], list[int]]:
    """The table's rows of prefill chunks, and those of decode rows."""
    by_kind: dict[str, list[int]] = {"True": [], "False": []}
    kinds, batches = table.texts("is_prefill"), table.numbers("batch_size", low=1)
    for row in rows:
        if kinds[row] not in by_kind:
            raise table.error(row, "is_prefill", f"must be True or False, got {kinds[row]!r}")
        if kinds[row] == "True" and batches[row] != 1:
            reason = f"must be 1 for a prefill chunk, got {batches[row]:g}"
            raise table.error(row, "batch_size", reason)
        by_kind[kinds[row]].append(row)
    for kind, found in by_kind.items():
        if not found:
            raise InputError(f"{table.path}: is_prefill: has no row of {kind}")
    return by_kind["True"], by_kind["False"]


def _plane(
    table: CsvTable, rows: Sequence[int], axes: tuple[str, str], operators: Sequence[str]
) -> dict[float, dict[float, float]]:
    """The sum of the operators' times, by two axes."""
    first, second = map(table.numbers, axes)
    columns = [table.numbers(_column(name)) for name in operators]
    points = (((first[row], second[row]), sum([times[row] for times in columns])) for row in rows)
    plane: dict[float, dict[float, float]] = {}
    for (x, y), time_ms in medians(points).items():
        plane.setdefault(x, {})[y] = time_ms
    return plane


def _curve(
    table: CsvTable, rows: Sequence[int], sizes: Sequence[float], operators: Mapping[str, int]
) -> Curve:
    columns = [(n, table.numbers(_column(name))) for name, n in operators.items()]
    points = ((sizes[row], sum([n * times[row] for n, times in columns])) for row in rows)
    return Curve.through(medians(points))


def _column(operator: str) -> str:
    return f"{_PREFIX}{operator}{_SUFFIX}"


def _hidden_size(mlp: CsvTable) -> int | None:
    return round(mlp.numbers("n_embd", low=1)[0]) if "n_embd" in mlp else None

"""Attention of LLMServingSim's tables, where one call serves prefill and decode rows."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sim.core.errors import InputError
from sim.latency.curves import Curve
from sim.latency.features import StepFeatures
from sim.latency.layers.attention import DecodeAttention, MixedAttention, Plane, PrefillAttention
from sim.latency.layers.decode_times import Alphas, SkewTable
from sim.latency.layers.limits import chunks_of
from sim.tables.csv_table import CsvTable, medians

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
        chunks = chunks_of(step)
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

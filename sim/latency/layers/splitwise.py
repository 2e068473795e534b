"""Splitwise's perf_model.csv: measured prompt and token times of whole models, in milliseconds.

The table has three sweeps around one base point: over the length of a single prompt, over the
number of prompts of the base length, and over the number of generated tokens. The third sweep is
not used. If many tokens were asked for, generation ended early, so the contexts of its token times
are not known.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sim.core.errors import InputError, InvariantError, unknown_name
from sim.core.units import NS_PER_MS
from sim.latency.curves import Curve
from sim.latency.features import StepFeatures
from sim.latency.layers.attention import LayersDecodeTimes
from sim.latency.range_counter import Limits, MeasuredSpans
from sim.tables.csv_table import CsvTable, medians

NAME = "perf_model.csv"


@dataclass(frozen=True, slots=True)
class Sweeps:
    """Times of one model on one kind of device, from the two sweeps that are used.

    Attributes:
        source: one line that says which model and device.
        base_prompt: prompt tokens of the base point.
        base_context: mean context while the tokens of the base point were generated.
        prompts_ms: time of one prompt, over its tokens.
        batches_ms: time of several prompts of the base length, over their tokens together.
        token_ms: time of a decode step at the base context, over the number of rows.
        context_ms: time of a decode step of one row, over its context.
    """

    source: str
    base_prompt: float
    base_context: float
    prompts_ms: Curve
    batches_ms: Curve
    token_ms: Curve
    context_ms: Curve


class SplitwiseModel:
    """Step times of a whole model: of prompts, of decode rows, or the sum of both.

    Prompts: each of the two sweeps has a time for n prompt tokens. One has it for several prompts
    of the base length, the other for a single prompt of length n. The step's time is interpolated
    between these two by its mean prompt length, which lies between the base length and n.

    Decode rows: the sweep over rows has the time at the base context. Further context of the first
    row adds what it adds in the sweep of one row. Each further token of context of every other row
    adds the mean slope of that sweep, from the base point to its end.
    """

    def __init__(self, sweeps: Sweeps) -> None:
        self.source = sweeps.source
        self._sweeps = sweeps
        self._lines: dict[int, Curve] = {}
        base, contexts = sweeps.base_context, sweeps.context_ms
        self._base_ms = contexts.at(base)
        rise_ms, end = contexts.values[-1] - self._base_ms, contexts.knots[-1]
        self._slope_ms = max(rise_ms / (end - base), 0.0) if end > base else 0.0

    @property
    def limits(self) -> Limits:
        sweeps = self._sweeps
        prompts, rows = sweeps.prompts_ms.knots, sweeps.token_ms.knots
        contexts = sweeps.context_ms.knots
        return MeasuredSpans(
            tokens=(1, max(prompts[-1], sweeps.batches_ms.knots[-1])),
            chunk=(prompts[0], prompts[-1]),
            cached=(0, 0),
            decode_rows=(rows[0], rows[-1]),
            mixed_rows=(rows[0], rows[-1]),
            context=(contexts[0], contexts[-1]),
        ).limits()

    def spread_tokens(self, step: StepFeatures) -> int:
        return 0

    def decode_line(self, rows: int, spread_tokens: int = 0) -> LayersDecodeTimes:
        return LayersDecodeTimes(rows, 0.0, self._over_context(rows), scale_ns=NS_PER_MS)

    def prefill_ns(self, step: StepFeatures) -> float:
        time_ms = self._prompts_ms(step.num_prefill_tokens, step.num_prefill_rows)
        rows = step.num_decode_rows
        if rows:
            mean = step.num_decode_context_tokens / rows - 1.0
            time_ms += self._over_context(rows).at(mean)
        return NS_PER_MS * time_ms

    def drafts_ns(self, step: StepFeatures) -> float:
        raise InvariantError("a table of whole models has no times of draft tokens")

    def _prompts_ms(self, num_tokens: int, num_prompts: int) -> float:
        single_ms = self._sweeps.prompts_ms.at(num_tokens)
        base = self._sweeps.base_prompt
        if num_prompts == 1 or num_tokens <= base:
            return single_ms
        share = max((num_tokens / num_prompts - base) / (num_tokens - base), 0.0)
        batch_ms = self._sweeps.batches_ms.at(num_tokens)
        return batch_ms + share * (single_ms - batch_ms)

    def _over_context(self, rows: int) -> Curve:
        """The time of this number of decode rows, over the tokens before the new one."""
        curve = self._lines.get(rows)
        if curve is None:
            sweeps = self._sweeps
            more_ms = sweeps.token_ms.at(rows) - self._base_ms
            other_ms = (rows - 1) * self._slope_ms
            points = zip(sweeps.context_ms.knots, sweeps.context_ms.values, strict=True)
            curve = self._lines[rows] = Curve.through(
                {
                    context - 1: one_ms + more_ms + other_ms * (context - sweeps.base_context)
                    for context, one_ms in points
                }
            )
        return curve


def read_splitwise(path: Path, tp: int, model: str | None, hardware: str | None) -> Sweeps:
    """Read one model on one kind of device, and one degree of tensor parallelism.

    The names of the model and the hardware may be None if the table has only one.
    """
    table = CsvTable(path)
    model = _chosen(table, "model", model, range(table.num_rows))
    rows = [row for row, name in enumerate(table.texts("model")) if name == model]
    hardware = _chosen(table, "hardware", hardware, rows)
    rows = [row for row in rows if table.texts("hardware")[row] == hardware]
    rows = _of_degree(table, rows, tp)
    where = f"{path}: {model} on {hardware}, tensor parallel {tp}"
    return _sweeps(_points(table, rows), where, f"Splitwise table, {where.partition(': ')[2]}")


def _chosen(table: CsvTable, column: str, name: str | None, rows: Iterable[int]) -> str:
    texts = table.texts(column)
    known = sorted({texts[row] for row in rows})
    key = ("latency", f"table_{column}")
    if name is None:
        if len(known) > 1:
            raise InputError(f"is required: {table.path} has {', '.join(known)}", key=key)
        return known[0]
    if name not in known:
        raise InputError(unknown_name(column, name, known), key=key)
    return name


def _of_degree(table: CsvTable, rows: Sequence[int], tp: int) -> list[int]:
    degrees = table.numbers("tensor_parallel", low=1)
    found = [row for row in rows if degrees[row] == tp]
    if not found:
        known = ", ".join(f"{degree:g}" for degree in sorted({degrees[row] for row in rows}))
        reason = f"must be one of {known}, the degrees in {table.path}, got {tp}"
        raise InputError(reason, key=("latency", "tp"))
    return found


class _MeasuredSize(NamedTuple):
    """The sizes of one measurement."""

    prompt: float
    batch: float
    tokens: float


# Prompt time and token time by size.
_Times = Mapping[_MeasuredSize, tuple[float, float]]


def _points(table: CsvTable, rows: Sequence[int]) -> _Times:
    sizes = [table.numbers(column, low=1) for column in ("prompt_size", "batch_size", "token_size")]
    points = [_MeasuredSize(*(column[row] for column in sizes)) for row in rows]
    prompt_ms, token_ms = (
        medians(zip(points, [times[row] for row in rows], strict=True))
        for times in map(table.numbers, ("prompt_time", "token_time"))
    )
    return {point: (prompt_ms[point], token_ms[point]) for point in prompt_ms}


def _sweeps(times: _Times, where: str, source: str) -> Sweeps:
    tokens = _usual(point.tokens for point in times)
    prompt = _usual(point.prompt for point in times if point.tokens == tokens)
    single = {point.prompt: both for point, both in times.items() if point[1:] == (1, tokens)}
    batch = {point.batch: both for point, both in times.items() if point[::2] == (prompt, tokens)}
    if prompt not in single:
        raise InputError(f"{where}: has no single prompt of {prompt:g} tokens")
    return Sweeps(
        source=source,
        base_prompt=prompt,
        base_context=prompt + tokens / 2,
        prompts_ms=Curve.through({size: both[0] for size, both in single.items()}),
        batches_ms=Curve.through({prompt * size: both[0] for size, both in batch.items()}),
        token_ms=Curve.through({size: both[1] for size, both in batch.items()}),
        context_ms=Curve.through({size + tokens / 2: both[1] for size, both in single.items()}),
    )


def _usual(sizes: Iterable[float]) -> float:
    """The base point's value of a size: the most frequent one, because other sweeps keep it."""
    return Counter(sizes).most_common(1)[0][0]

"""Step times put together from measured operator times, as docs/explanation/latency.md says."""

from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache
from math import isnan, nan

import numpy as np

from sim.core.arrays import Float64, Int64, whole_ns
from sim.core.units import NS_PER_MS, seconds_to_ns
from sim.latency.aiconfigurator.deployment import ModelDeployment
from sim.latency.aiconfigurator.operators import PackageEngine
from sim.latency.aiconfigurator.package import naming_what_there_is, open_engine
from sim.latency.features import StepFeatures, padded_rows
from sim.latency.model import StepTime, equal_ns

_KNOTS_PER_DOUBLING = 8
_NUM_DOUBLINGS = 18


def _knots() -> Float64:
    """1 to 8 tokens, then eight equal parts of every doubling up to 2**21."""
    octaves = [
        8 * 2**doubling + part * 2**doubling
        for doubling in range(_NUM_DOUBLINGS)
        for part in range(_KNOTS_PER_DOUBLING)
    ]
    return np.array([*range(1, 8), *octaves, 8 * 2**_NUM_DOUBLINGS], dtype=np.float64)


KNOTS = _knots()
_KNOTS: list[float] = KNOTS.tolist()
_LAST_LINE = len(_KNOTS) - 2


def _line_at(mean_context: float) -> int:
    """The number of the line between two knots that has this context, or is next to it."""
    return min(max(bisect_right(_KNOTS, mean_context) - 1, 0), _LAST_LINE)


class ContextCurve:
    """The time of decode attention over the rows' mean context: straight lines between knots.

    The package answers for whole numbers of tokens, one at a time. The mean context is a fraction,
    and a run of decode steps needs hundreds of times. The knots are fixed, so that an answer does
    not depend on earlier ones. The first and the last line go on beyond them.

    The package is asked for the time at a knot when a line first needs it, because an answer far
    from the measurements takes a tenth of a millisecond. (`Curve` needs all times at the start.)
    """

    def __init__(self, time_ms: Callable[[int], float]) -> None:
        """Take a function from whole tokens of context to milliseconds."""
        self._time_ms = time_ms
        self._at_knot_ms = [nan] * len(_KNOTS)

    def at_ms(self, mean_context: float) -> float:
        """The time at one context: equal to the bit to `time_ms`, and ten times as quick."""
        line = _line_at(mean_context)
        begin_ms, end_ms = self._at_knot(line), self._at_knot(line + 1)
        begin = _KNOTS[line]
        share = (mean_context - begin) / (_KNOTS[line + 1] - begin)
        return begin_ms + (end_ms - begin_ms) * share

    def time_ms(self, mean_contexts: Float64) -> Float64:
        """The times at rising contexts, each equal to the bit to `at_ms` of it alone."""
        first, last = _line_at(mean_contexts[0]), _line_at(mean_contexts[-1])
        if first == last:
            # Most runs of decode steps are so short that one line has all of their contexts.
            begin, begin_ms = _KNOTS[first], self._at_knot(first)
            rise_ms, width = self._at_knot(first + 1) - begin_ms, _KNOTS[first + 1] - begin
            of_one_line: Float64 = begin_ms + rise_ms * ((mean_contexts - begin) / width)
            return of_one_line
        line = np.searchsorted(KNOTS, mean_contexts, side="right") - 1
        line = np.clip(line, 0, _LAST_LINE)
        at_knot_ms = np.array([self._at_knot(knot) for knot in range(first, last + 2)])
        knot, at_begin_ms = KNOTS[line], at_knot_ms[line - first]
        rises_ms = at_knot_ms[line + 1 - first] - at_begin_ms
        share = (mean_contexts - knot) / (KNOTS[line + 1] - knot)
        times_ms: Float64 = at_begin_ms + rises_ms * share
        return times_ms

    def _at_knot(self, knot: int) -> float:
        time_ms = self._at_knot_ms[knot]
        if isnan(time_ms):
            time_ms = self._at_knot_ms[knot] = self._time_ms(int(_KNOTS[knot]))
        return time_ms


# Answers that a model keeps: the least recently used are forgotten first.
_KEPT_ANSWERS = 1 << 15
_KEPT_CURVES = 1 << 12
_KEPT_MODELS = 32


class AiconfiguratorLatency:
    """The operators of a step one after another, plus host time.

    Answers over tokens are kept by number of tokens, and those over decode rows by number of rows,
    as a curve over the context.
    """

    def __init__(
        self,
        operators: PackageEngine,
        *,
        host_s: float = 0.0,
        graph_sizes: tuple[int, ...] = (),
    ) -> None:
        """Compose the steps of a deployment; InputError: there are no times for its smallest steps.

        CUDA graphs were captured for the numbers of decode rows in `graph_sizes`. In a step of
        decode rows alone, operators over tokens run on padding, too.
        """
        self.source = operators.source
        self.num_layers = operators.num_layers
        prefill, decode = operators.prefill, operators.decode
        head = decode if decode.head else prefill
        keep = lru_cache(maxsize=_KEPT_ANSWERS)
        self._prefill_tokens_ms = keep(prefill.tokens_ms)
        self._decode_tokens_ms = keep(decode.tokens_ms)
        self._head_ms = keep(head.head_ms)
        self._num_ranks = prefill.num_ranks
        self._prefill_experts_ms = keep(prefill.experts_ms)
        self._decode_experts_ms = keep(decode.experts_ms)
        self._prefill_messages_ms = keep(prefill.messages_ms)
        self._decode_messages_ms = keep(decode.messages_ms)
        self._prefill_rows_ms = keep(prefill.rows_ms)
        self._curve = lru_cache(maxsize=_KEPT_CURVES)(
            lambda num_rows: ContextCurve(lambda context: decode.rows_ms(num_rows, context))
        )
        self._host_ns = seconds_to_ns(host_s)
        self._graph_sizes = graph_sizes
        self.depends_on_step_alone = True
        # So that a model without data is found when the scenario is read.
        for ask_ms in (self._prefill_tokens_ms, self._decode_tokens_ms, self._head_ms):
            ask_ms(1)
        self._prefill_rows_ms(1, 1, 0)
        decode.rows_ms(1, 1)

    def step_ns(self, step: StepFeatures) -> StepTime:
        device_ms, rows = self._fixed_ms(step), step.num_decode_rows
        if rows:
            # The package takes a row with k draft tokens for 1 + k rows.
            mean_context = step.num_decode_context_tokens / rows
            device_ms += self._curve(rows + step.num_draft_tokens).at_ms(mean_context)
        return StepTime(max(round(device_ms * NS_PER_MS), 1), self._host_ns)

    def decode_run_ns(self, first: StepFeatures, num_steps: int) -> tuple[Int64, Int64]:
        device_ms = np.full(num_steps, self._fixed_ms(first))
        rows = first.num_decode_rows
        if rows:
            grown = rows * np.arange(num_steps, dtype=np.int64)
            mean_contexts = (first.num_decode_context_tokens + grown) / rows
            device_ms += self._curve(rows).time_ms(mean_contexts)
        device_ns = np.maximum(whole_ns(device_ms * NS_PER_MS), 1)
        return device_ns, equal_ns(self._host_ns, num_steps)

    def head_ns(self, step: StepFeatures) -> int:
        """The time of the output head alone, a part of the step's."""
        return round(self._head_ms(step.num_prefill_rows + step.num_decode_rows) * NS_PER_MS)

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        """Nothing to do: the times depend on the features alone."""

    def _fixed_ms(self, step: StepFeatures) -> float:
        """Everything but the decode rows' attention, which alone grows with their context."""
        num_verified = step.num_decode_rows + step.num_draft_tokens
        fixed_ms = self._head_ms(step.num_prefill_rows + num_verified)
        decodes_alone = not step.num_prefill_rows
        if self._num_ranks > 1:
            # A rank that decodes beside one that prefills runs without a graph, too.
            graph = decodes_alone and not step.group_prefills
            if graph and step.max_rank_tokens:
                rows = padded_rows(step.max_rank_tokens, self._graph_sizes)
                step = step.copy()
                step.max_rank_tokens = rows
            experts_ms = self._decode_experts_ms if graph else self._prefill_experts_ms
            messages_ms = self._decode_messages_ms if graph else self._prefill_messages_ms
            fixed_ms += experts_ms(step.expert_tokens(self._num_ranks))
            fixed_ms += messages_ms(step.max_rank_tokens or step.num_tokens)
        if decodes_alone:
            rows = padded_rows(num_verified, self._graph_sizes)
            return fixed_ms + self._decode_tokens_ms(rows)
        fixed_ms += self._prefill_tokens_ms(step.num_prefill_tokens + num_verified)
        return fixed_ms + self._prefill_attention_ms(step)

    def _prefill_attention_ms(self, step: StepFeatures) -> float:
        """Attention of equal rows that together have the step's new tokens and query-key pairs.

        The package scales the time of a row without a cached prefix by the share of query-key pairs
        that are left. That leaves out the reading of the cached keys. Decoding one token of each
        row reads them, too, so the result is at least the time of that.
        """
        rows, num_new = step.num_prefill_rows, step.num_prefill_tokens
        new = num_new / rows
        # Twice the pairs are the sum of new x (2 x cached + new); at least 0 by Cauchy-Schwarz.
        cached = round((step.prefill_attention / num_new - new) / 2)
        below = int(new)
        computed_ms = self._prefill_rows_ms(rows, below, cached)
        if below < new:
            above_ms = self._prefill_rows_ms(rows, below + 1, cached)
            computed_ms += (above_ms - computed_ms) * (new - below)
        num_context = step.num_context_tokens - step.num_decode_context_tokens
        return max(computed_ms, self._curve(rows).at_ms(num_context / rows))


@lru_cache(maxsize=_KEPT_MODELS)
def composed_latency(
    deployment: ModelDeployment, host_s: float, graph_sizes: tuple[int, ...]
) -> AiconfiguratorLatency:
    """The latency model of a deployment. It has no state but kept answers: all runs share it."""
    with naming_what_there_is(deployment):
        operators = open_engine(deployment)
        return AiconfiguratorLatency(operators, host_s=host_s, graph_sizes=graph_sizes)

"""Step times put together from measured operator times, as docs/explanation/latency.md says."""

from functools import cache

import numpy as np

from sim.core.arrays import Float64, Int64
from sim.core.units import NS_PER_MS, seconds_to_ns
from sim.latency.aiconfigurator.curve import ContextCurve
from sim.latency.aiconfigurator.database import OperatorDatabase
from sim.latency.aiconfigurator.operators import step_operators
from sim.latency.features import StepFeatures
from sim.latency.model import StepTime
from sim.latency.shapes import ModelShape


class AiconfiguratorLatency:
    """The operators of a step one after another, plus constant host time.

    Two caches avoid repeated questions: operators over tokens by their number of tokens, and decode
    attention by its number of rows, as a curve over the context. Prefill attention is not cached.
    """

    def __init__(
        self, model: ModelShape, database: OperatorDatabase, *, tp: int = 1, host_s: float = 0.0
    ) -> None:
        """Compose `model` on `tp` devices.

        Raises:
            InputError: the model cannot be split over `tp` devices, or the database has no data.
        """
        operators = step_operators(model, tp)
        self.source = database.source
        self._tokens_ms = cache(database.token_timer(operators.tokens))
        self._head_ms = cache(database.token_timer(operators.head))
        self._prefill_ms = database.prefill_timer(operators.attention)
        decode_ms = database.decode_timer(operators.attention)
        self._curve = cache(
            lambda num_rows: ContextCurve(lambda context: decode_ms(num_rows, context))
        )
        self._host_ns = seconds_to_ns(host_s)
        # Ask for one time of each kind, so that missing data is an error before the run begins.
        for ask_ms in (self._tokens_ms, self._head_ms):
            ask_ms(1)
        self._prefill_ms(1, 1, 0)
        decode_ms(1, 1)

    def step_ns(self, step: StepFeatures) -> StepTime:
        device_ns, _ = self.decode_run_ns(step, 1)
        return StepTime(int(device_ns[0]), self._host_ns)

    def decode_run_ns(self, first: StepFeatures, num_steps: int) -> tuple[Int64, Int64]:
        device_ms = np.full(num_steps, self._fixed_ms(first))
        rows = first.num_decode_rows
        if rows:
            grown = rows * np.arange(num_steps, dtype=np.int64)
            mean_contexts = (first.num_decode_context_tokens + grown) / rows
            device_ms += self._curve(rows).time_ms(mean_contexts)
        device_ns = np.maximum(np.rint(device_ms * NS_PER_MS).astype(np.int64), 1)
        return device_ns, np.full(num_steps, self._host_ns, dtype=np.int64)

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        """Nothing to do: the times depend on the features alone."""

    def _fixed_ms(self, step: StepFeatures) -> float:
        """The time of all but the decode rows' attention, the only part that grows in a run."""
        fixed_ms = self._tokens_ms(step.num_prefill_tokens + step.num_decode_rows)
        fixed_ms += self._head_ms(step.num_prefill_rows + step.num_decode_rows)
        if step.num_prefill_rows:
            fixed_ms += self._prefill_attention_ms(step)
        return fixed_ms

    def _prefill_attention_ms(self, step: StepFeatures) -> float:
        """The attention time of the prefill rows, as if all of them were equally long.

        These equal rows have the step's number of new tokens and of query-key pairs. For a row with
        a cached prefix, the package takes the time of the same row without a cache, and scales it
        by the share of query-key pairs to compute. This leaves out the time to read the cached
        keys. A decode step over the same context reads them too, so the result is at least its
        time.
        """
        rows, num_new = step.num_prefill_rows, step.num_prefill_tokens
        new = num_new / rows
        # `prefill_attention` is the sum of new x (2 x cached + new); by Cauchy-Schwarz `cached`
        # is at least 0.
        cached = round((step.prefill_attention / num_new - new) / 2)
        below = int(new)
        computed_ms = self._prefill_ms(rows, below, cached)
        if below < new:
            above_ms = self._prefill_ms(rows, below + 1, cached)
            computed_ms += (above_ms - computed_ms) * (new - below)
        num_context = step.num_context_tokens - step.num_decode_context_tokens
        read_ms: Float64 = self._curve(rows).time_ms(np.array([num_context / rows]))
        return max(computed_ms, float(read_ms[0]))

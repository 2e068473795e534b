"""A step put together from the layers of a model."""

from dataclasses import dataclass
from typing import Protocol

from sim.core.units import NS_PER_S
from sim.latency.curves import Curve, weighted_sum
from sim.latency.features import StepFeatures
from sim.latency.layers.decode_times import LayersDecodeTimes
from sim.latency.layers.limits import Limits
from sim.latency.layers.skew import Alphas

# Weights and activations in 16 bits.
_BYTES = 2


class AttentionTimes(Protocol):
    """Attention of one layer, in the table's unit. Contexts are tokens before the new one."""

    def decode_curve(self, rows: int) -> Curve:
        """Of a step with so many decode rows and nothing else, over their mean context."""
        ...

    def decode_alphas(self, rows: int) -> Alphas | None:
        """What corrects it where contexts are unequal."""
        ...

    def prefill_time(self, step: StepFeatures) -> float:
        """Of a step with prefill rows, its decode rows included."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTimes:
    """What a table holds, whatever the number of layers.

    Attributes:
        source: what the table says of itself, in one line.
        limits: where it was measured.
        unit_ns: nanoseconds of its unit.
        once: what runs once a step, over new tokens.
        layer: what runs once a layer, over new tokens.
        head: what runs once a step, over rows with logits; none: not in the table.
        attention: one layer's.
        hidden_size: width of the residual stream, if the table tells.
        model: whose layers they are, if the table tells.
    """

    source: str
    limits: Limits
    unit_ns: float
    once: Curve
    layer: Curve
    head: Curve | None
    attention: AttentionTimes
    hidden_size: int | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class AllReduce:
    """Sums over the devices that a model is split over, in a ring.

    Attributes:
        num_devices: how many.
        latency_s: seconds of every sum, whatever its size.
        gb_per_s: 10^9 bytes a second that a device sends and receives; 0: no time for them.
        hidden_size: elements of a token, of 16 bits.
    """

    num_devices: int
    latency_s: float
    gb_per_s: float
    hidden_size: int

    def curve_ns(self) -> Curve:
        """One sum over the tokens of a step."""
        token_bytes = 2 * (self.num_devices - 1) / self.num_devices * self.hidden_size * _BYTES
        token_ns = token_bytes / self.gb_per_s if self.gb_per_s else 0.0
        latency_ns = self.latency_s * NS_PER_S
        return Curve([0.0, 1.0], [latency_ns, latency_ns + token_ns])


class LayerComposition:
    """Every layer of a model, one after another, and what comes before and after them."""

    def __init__(
        self, times: LayerTimes, num_layers: int, all_reduce: AllReduce | None = None
    ) -> None:
        """Compose.

        Args:
            times: the table.
            num_layers: layers of the model.
            all_reduce: the sums of a split model: after the embedding, and after the attention and
                the MLP of every layer.
        """
        self.source, self.limits = times.source, times.limits
        unit_ns = times.unit_ns
        parts = [(unit_ns, times.once), (unit_ns * num_layers, times.layer)]
        if all_reduce is not None:
            parts.append((2 * num_layers + 1, all_reduce.curve_ns()))
        self._tokens_ns = weighted_sum(parts)
        self._head_ns = weighted_sum([(unit_ns, times.head)]) if times.head else None
        self._attention = times.attention
        self._attention_ns = unit_ns * num_layers

    @property
    def knows_spread(self) -> bool:
        """The table says how much longer unequal contexts take."""
        return self._attention.decode_alphas(2) is not None

    def decode_line(self, rows: int) -> LayersDecodeTimes:
        return LayersDecodeTimes(
            rows,
            self._without_attention_ns(rows, rows),
            self._attention.decode_curve(rows),
            scale_ns=self._attention_ns,
            alphas=self._attention.decode_alphas(rows),
        )

    def prefill_ns(self, step: StepFeatures) -> float:
        num_tokens = step.num_prefill_tokens + step.num_decode_rows
        num_rows = step.num_prefill_rows + step.num_decode_rows
        attention_ns = self._attention_ns * self._attention.prefill_time(step)
        return self._without_attention_ns(num_tokens, num_rows) + attention_ns

    def _without_attention_ns(self, num_tokens: int, num_rows: int) -> float:
        tokens_ns = self._tokens_ns.at(num_tokens)
        return tokens_ns if self._head_ns is None else tokens_ns + self._head_ns.at(num_rows)

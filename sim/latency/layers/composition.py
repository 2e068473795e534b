"""The device time of a step as a sum over the layers of a model."""

from dataclasses import dataclass, replace
from typing import Protocol

from sim.core.units import NS_PER_S
from sim.latency.curves import Curve, weighted_sum
from sim.latency.features import StepFeatures
from sim.latency.layers.decode_times import Alphas, LayersDecodeTimes
from sim.latency.layers.limits import Limits

_ACTIVATION_BYTES = 2


class AttentionTimes(Protocol):
    """Attention of one layer, in the table's unit. A context does not count the new token."""

    def decode_curve(self, rows: int) -> Curve:
        """The time of a step with decode rows only, over their mean context."""
        ...

    def decode_alphas(self, rows: int) -> Alphas | None:
        """The correction of `decode_curve` for unequal contexts; None: the table has none."""
        ...

    def prefill_time(self, step: StepFeatures) -> float:
        """The time of a step with prefill rows, its decode rows included."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTimes:
    """The times of a table.

    Attributes:
        source: one line that says where the times were measured.
        limits: the ranges of step sizes that were measured.
        unit_ns: the table's unit of time, in ns.
        once: time of what runs once a step, over new tokens.
        layer: time of one layer without attention, over new tokens.
        head: time of the output head, over rows with logits; None: the table does not have it.
        attention: times of one layer's attention.
        hidden_size: width of the residual stream; None: the table does not say.
        model: the model that was measured; None: the table does not say.
        experts: of one layer, spread over the devices, over the new tokens of all ranks; None:
            there are none, or one device has them all and `layer` includes them.
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
    experts: Curve | None = None


@dataclass(frozen=True, slots=True)
class AllReduce:
    """Ring all-reduces over the devices that a model is split over.

    Attributes:
        num_devices: the number of devices.
        latency_s: seconds that each all-reduce takes besides the transfer.
        gb_per_s: 10^9 bytes a second that a device sends and receives; 0: the transfer takes no
            time.
        hidden_size: a token's activations, of 16 bits each.
    """

    num_devices: int
    latency_s: float
    gb_per_s: float
    hidden_size: int

    def curve_ns(self) -> Curve:
        """The time of one all-reduce, over the tokens of a step."""
        # In a ring, each device sends this share of the data.
        share = 2 * (self.num_devices - 1) / self.num_devices
        token_bytes = share * self.hidden_size * _ACTIVATION_BYTES
        token_ns = token_bytes / self.gb_per_s if self.gb_per_s else 0.0
        latency_ns = self.latency_s * NS_PER_S
        return Curve([0.0, 1.0], [latency_ns, latency_ns + token_ns])

    def exchange_ns(self) -> Curve:
        """The time of gathering every rank's tokens and of scattering sums back, over all tokens.

        A ring all-reduce is a scatter and a gather. Done one by one, each has the latency.
        """
        return replace(self, latency_s=2 * self.latency_s).curve_ns()


class LayerComposition:
    """The device times of a whole model: its layers, the embedding and the output head."""

    def __init__(
        self,
        times: LayerTimes,
        num_layers: int,
        all_reduce: AllReduce | None = None,
        exchange: AllReduce | None = None,
    ) -> None:
        """Compose the times of a table.

        A model on several devices has an `all_reduce` after the embedding, and in each layer one
        after the attention and one after the MLP. Ranks that step together have an `exchange`
        before and after the experts of each layer.
        """
        self.source, self.limits = times.source, times.limits
        unit_ns = times.unit_ns
        parts = [(unit_ns, times.once), (unit_ns * num_layers, times.layer)]
        if all_reduce is not None:
            parts.append((2 * num_layers + 1, all_reduce.curve_ns()))
        self._tokens_ns = weighted_sum(parts)
        self._num_ranks = 1 if exchange is None else exchange.num_devices
        spread = [] if times.experts is None else [(unit_ns * num_layers, times.experts)]
        if exchange is not None:
            spread.append((num_layers, exchange.exchange_ns()))
        self._spread_ns = weighted_sum(spread) if spread else None
        self._head_ns = weighted_sum([(unit_ns, times.head)]) if times.head else None
        self._attention = times.attention
        self._attention_ns = unit_ns * num_layers

    @property
    def knows_spread(self) -> bool:
        """Whether the table says how much longer rows of unequal context take."""
        return self._attention.decode_alphas(2) is not None

    def spread_tokens(self, step: StepFeatures) -> int:
        """New tokens that the experts of all devices compute together; 0: none are spread."""
        return 0 if self._spread_ns is None else step.expert_tokens(self._num_ranks)

    def decode_line(self, rows: int, spread_tokens: int = 0) -> LayersDecodeTimes:
        return LayersDecodeTimes(
            rows,
            self._without_attention_ns(rows, rows, spread_tokens),
            self._attention.decode_curve(rows),
            scale_ns=self._attention_ns,
            alphas=self._attention.decode_alphas(rows),
        )

    def prefill_ns(self, step: StepFeatures) -> float:
        num_tokens = step.num_prefill_tokens + step.num_decode_rows
        num_rows = step.num_prefill_rows + step.num_decode_rows
        attention_ns = self._attention_ns * self._attention.prefill_time(step)
        return (
            self._without_attention_ns(num_tokens, num_rows, self.spread_tokens(step))
            + attention_ns
        )

    def drafts_ns(self, step: StepFeatures) -> float:
        """What draft tokens add to a step: their matrices and the head.

        Attention is that of the rows without them: it reads each context once, whatever the number
        of its queries. Experts that are spread are counted with all tokens of the step.
        """
        num_tokens = step.num_tokens
        num_rows = step.num_prefill_rows + step.num_decode_rows
        added_ns = self._tokens_ns.at(num_tokens)
        added_ns -= self._tokens_ns.at(num_tokens - step.num_draft_tokens)
        if self._head_ns is not None:
            added_ns += self._head_ns.at(num_rows + step.num_draft_tokens)
            added_ns -= self._head_ns.at(num_rows)
        return added_ns

    def _without_attention_ns(self, num_tokens: int, num_rows: int, spread_tokens: int) -> float:
        tokens_ns = self._tokens_ns.at(num_tokens)
        if self._spread_ns is not None:
            tokens_ns += self._spread_ns.at(spread_tokens)
        return tokens_ns if self._head_ns is None else tokens_ns + self._head_ns.at(num_rows)

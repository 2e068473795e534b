"""The device time of a step as a sum over the layers of a model, and the latency model over it."""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from sim.core.arrays import Int64
from sim.core.units import NS_PER_S
from sim.latency.curves import Curve, weighted_sum
from sim.latency.features import StepFeatures
from sim.latency.host import HostTimes
from sim.latency.layers.attention import Alphas, LayersDecodeTimes
from sim.latency.layers.splitwise import SplitwiseModel
from sim.latency.model import RangeReport, StepTime, equal_ns
from sim.latency.range_counter import Limits, RangeCounter

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


# Times of decode steps that are kept at once; each is for a number of rows and of tokens.
_MOST_LINES = 4096


class LayersLatency:
    """Device times composed from a table, plus host time.

    Host times are fitted to latencies that a server's clients saw. Under overlap scheduling these
    show only the part of the host's work that overlap did not hide. So with overlap the fitted
    times count as device time, of which overlap hides nothing.
    """

    def __init__(
        self,
        composition: LayerComposition | SplitwiseModel,
        host: HostTimes | None = None,
        *,
        overlaps: bool = False,
        corrects_spread: bool = True,
    ) -> None:
        """Compose.

        `overlaps`: the scheduler decides a step while the one before runs. `corrects_spread`: apply
        the table's correction for decode rows of unequal context.
        """
        self.source = composition.source
        self._overlaps = overlaps
        self._corrects_spread = corrects_spread
        self._composition = composition
        self._host = host or HostTimes()
        self._lines: dict[tuple[int, int], LayersDecodeTimes] = {}
        self._ranges = RangeCounter(composition.limits)
        self.depends_on_step_alone = True

    def step_ns(self, step: StepFeatures) -> StepTime:
        rows = step.num_decode_rows
        host_ns = self._host.host_ns(step.num_prefill_rows + rows)
        if step.num_prefill_rows:
            if not self._corrects_spread:
                step = step.copy()
                step.max_decode_context_tokens = 0
            device_ns = max(1, round(self._composition.prefill_ns(step)))
        else:
            device_ns = self._line(step).step_ns(*self._contexts(step))
        if step.num_draft_tokens:
            device_ns += round(self._composition.drafts_ns(step))
        return StepTime(device_ns + host_ns, 0) if self._overlaps else StepTime(device_ns, host_ns)

    def decode_run_ns(self, first: StepFeatures, num_steps: int) -> tuple[Int64, Int64]:
        rows = first.num_decode_rows
        device_ns = self._line(first).run_ns(*self._contexts(first), num_steps)
        host_ns = equal_ns(self._host.host_ns(rows), num_steps)
        if self._overlaps:
            return device_ns + host_ns, np.zeros_like(host_ns)
        return device_ns, host_ns

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        """Count the steps that ran, and how many of them were outside the table."""
        self._ranges.count(first, num_steps)

    def left_range(self) -> RangeReport:
        """How many steps so far were outside the table, and in which sizes."""
        return self._ranges.report()

    def _line(self, step: StepFeatures) -> LayersDecodeTimes:
        key = step.num_decode_rows, self._composition.spread_tokens(step)
        line = self._lines.get(key)
        if line is None:
            if len(self._lines) >= _MOST_LINES:
                self._lines.clear()
            line = self._lines[key] = self._composition.decode_line(*key)
        return line

    def _contexts(self, step: StepFeatures) -> tuple[int, int, int]:
        """The total, longest and shortest context of the decode rows; 0: not to be used."""
        context = step.num_decode_context_tokens
        if not self._corrects_spread:
            return context, 0, 0
        return context, step.max_decode_context_tokens, step.min_decode_context_tokens

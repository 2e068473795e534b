"""How many servers traffic keeps busy, by step times alone, without a simulation.

A search for deployments begins with these numbers, so they need not be exact.
"""

from functools import cached_property

from sim.core.batch import ForwardMode
from sim.core.errors import InputError
from sim.latency.features import StepFeatures
from sim.latency.model import LatencyModel, each_latency
from sim.scenario.build import BuiltScenario, build
from sim.sweep.capacity.candidates import REPLICAS, Candidate
from sim.sweep.plan import Plan
from sim.workload.stats import WorkloadStats, workload_stats
from sim.workload.traces.read import TraceReader

_NS_PER_S, _NS_PER_MS = 10**9, 10**6
# New tokens of the prefill step whose time is taken: enough to keep any GPU busy.
_STEP_TOKENS = 8192


class ServerLoads:
    """The loads of a scenario's traffic on servers of several kinds.

    Args:
        plan: the scenario.
        factor: what the rate of its traffic is multiplied by.
        read_trace: reads the rows of a trace.
    """

    def __init__(self, plan: Plan, factor: float, read_trace: TraceReader) -> None:
        self._plan = plan
        self._factor = factor
        self._read_trace = read_trace
        self._known: dict[int, tuple[float, float]] = {}

    def of(self, candidate: Candidate) -> tuple[float, float]:
        """How many prefill servers, and how many decode servers, the traffic keeps busy.

        Traffic whose rate is not known beforehand keeps none busy. Nor are servers busy that cannot
        be built, for example because the model does not fit: their trial says why.
        """
        if candidate.number not in self._known:
            self._known[candidate.number] = self._loads(candidate)
        return self._known[candidate.number]

    @cached_property
    def _stats(self) -> WorkloadStats:
        return workload_stats(build(self._plan.base, read_trace=self._read_trace).workload)

    def _loads(self, candidate: Candidate) -> tuple[float, float]:
        rate = self._stats.rate_rps
        if rate is None:
            return (0.0, 0.0)
        varied = self._plan.vary({**candidate.settings, REPLICAS: 1})
        try:
            built = build(varied, read_trace=self._read_trace)
        except InputError:
            return (0.0, 0.0)
        if built.scheduler.micro_batches > 1 or varied.scenario.scheduler.drafts is not None:
            # Rows of several batches, or several tokens of a row, are under way at a time.
            return (0.0, 0.0)
        latency = next(each_latency(built.latencies))
        ranks = candidate.degrees.get("dp", 1)
        busy = rate * self._factor / ranks
        return (
            busy * self._prefill_ns(latency) / _NS_PER_S,
            busy * self._decode_ns(built, latency) / _NS_PER_S,
        )

    def _prefill_ns(self, latency: LatencyModel) -> float:
        """Time of a prompt of mean length, of which everything is cached that can be."""
        prompt = round(self._stats.input_tokens.mean)
        new = max(1, round(prompt * (1 - self._stats.token_hit_pct / 100)))
        cached, rows = prompt - new, max(1, _STEP_TOKENS // new)
        step = StepFeatures(
            mode=ForwardMode.EXTEND,
            num_prefill_tokens=rows * new,
            prefill_attention=rows * new * (2 * cached + new),
            num_prefill_rows=rows,
            num_decode_rows=0,
            num_decode_context_tokens=0,
            num_context_tokens=rows * prompt,
            prefill_rows=((cached, new),) * rows,
        )
        return latency.step_ns(step).device_ns / rows

    def _decode_ns(self, built: BuiltScenario, latency: LatencyModel) -> float:
        """Time of an output of mean length: its share of the steps that many rows have together.

        The rows are as many as the SLO and the memory allow.
        """
        stats, limit_ms = self._stats, built.loaded.scenario.slo.tpot_ms
        outputs = stats.output_tokens.mean
        whole = stats.input_tokens.mean + outputs
        most_rows = int(built.scheduler.pool_tokens // whole)
        most = max(1, min(most_rows, built.scheduler.max_rows))
        context = round(stats.input_tokens.mean + outputs / 2)

        def step_ns(rows: int) -> float:
            tokens = rows * context
            step = StepFeatures(
                mode=ForwardMode.DECODE,
                num_prefill_tokens=0,
                prefill_attention=0,
                num_prefill_rows=0,
                num_decode_rows=rows,
                num_decode_context_tokens=tokens,
                num_context_tokens=tokens,
                max_decode_context_tokens=context,
                min_decode_context_tokens=context,
            )
            return float(latency.step_ns(step).device_ns)

        low, high = 1, most
        while limit_ms is not None and low < high:
            rows = (low + high + 1) // 2
            if step_ns(rows) <= limit_ms * _NS_PER_MS:
                low = rows
            else:
                high = rows - 1
        rows = most if limit_ms is None else low
        return outputs * step_ns(rows) / rows

"""Who waits in a run: how much longer requests take than alone on the server, and who starves."""

from collections.abc import Callable
from typing import Any

import numpy as np

from sim.core.arrays import Bools, Float64, Int64
from sim.core.request import Status
from sim.core.units import NS_PER_MS
from sim.latency.features import equal_decodes, equal_prefills
from sim.latency.model import LatencyModel, each_latency
from sim.metrics.groups import group_masks, jain_index
from sim.metrics.latencies import finished_mask, request_latencies, status_mask
from sim.metrics.rates import queue_times_ns
from sim.runlog import RequestColumns, RunLog
from sim.scenario.build import BuiltScenario

# A request starves if it waits this many times the SLO's limit on TTFT.
STARVES_AT = 10
# Short and long requests are the quarters that take least and most time alone.
_QUARTER = 0.25
# Times are computed for this many lengths, and read off between them.
_NUM_LENGTHS = 24


def slowdown_metrics(log: RunLog, built: BuiltScenario) -> dict[str, Any]:
    """Metrics of how evenly requests are served, as plain JSON values. None: not defined.

    The slowdown of a finished request is its end-to-end latency over the time that it would take
    alone on the server: the device time of one step for its prompt, with nothing cached, and of a
    step for each further token.

    * `mean_slowdown`, `short_slowdown`, `long_slowdown`: means over all requests, and over the
      quarters of requests that take least and most time alone.
    * `jain_slowdown`: Jain's index of the tenants' mean slowdowns.
    * `starved_pct`: the share of requests that wait for their first batch for more than ten times
      the SLO's limit on TTFT, in percent.
    * `stops`: times that a running request was put back into the queue: retractions and
      preemptions.
    """
    measured = log.measured()
    requests, finished = measured.requests, finished_mask(measured.requests)
    alone_ms = _alone_ns(requests, built) / NS_PER_MS
    slowdown = request_latencies(requests).e2e_latency_ms / alone_ms
    low, high = np.quantile(alone_ms, (_QUARTER, 1 - _QUARTER)) if len(alone_ms) else (0, 0)
    tenants = [
        _mean(slowdown[finished & mask])
        for name, mask in group_masks(requests).items()
        if name.startswith("tenants.")
    ]
    known = np.array([mean for mean in tenants if mean is not None], dtype=np.float64)
    return {
        "mean_slowdown": _mean(slowdown[finished]),
        "short_slowdown": _mean(slowdown[finished & (alone_ms <= low)]),
        "long_slowdown": _mean(slowdown[finished & (alone_ms >= high)]),
        "jain_slowdown": jain_index(known) if len(known) > 1 else None,
        "starved_pct": _starved_pct(measured, built.loaded.scenario.slo.ttft_ms),
        "stops": int(requests.retractions.sum() + requests.preemptions.sum()),
    }


def _mean(values: Float64) -> float | None:
    return float(values.mean()) if len(values) else None


def _starved_pct(log: RunLog, ttft_ms: float | None) -> float | None:
    taken: Bools = ~status_mask(log.requests, Status.REJECTED)
    if ttft_ms is None or not taken.any():
        return None
    waits_ms = queue_times_ns(log)[taken] / NS_PER_MS
    return 100 * float((waits_ms > STARVES_AT * ttft_ms).mean())


def _alone_ns(requests: RequestColumns, built: BuiltScenario) -> Float64:
    """The time that each request would take alone, in ns; shape [num_requests]."""
    latency = next(each_latency(built.latencies))
    prompts, num_later = requests.prompt_tokens, np.maximum(requests.output_tokens - 1, 0)
    prefill_ns = _read_off(prompts, lambda tokens: _prefill_ns(latency, tokens))
    middles = prompts + requests.output_tokens // 2
    step_ns = _read_off(middles, lambda tokens: _decode_ns(latency, tokens))
    return prefill_ns + num_later * step_ns


def _read_off(tokens: Int64, time_ns: Callable[[int], int]) -> Float64:
    """Times for numbers of tokens, interpolated between some of them."""
    if not len(tokens):
        return np.zeros(0)
    ends = max(1, int(tokens.min())), max(1, int(tokens.max()))
    known = np.unique(np.geomspace(*ends, _NUM_LENGTHS).round().astype(np.int64))
    times = np.array([time_ns(int(length)) for length in known], dtype=np.float64)
    return np.asarray(np.interp(tokens, known, times), dtype=np.float64)


def _prefill_ns(latency: LatencyModel, prompt: int) -> int:
    return latency.step_ns(equal_prefills(1, 0, prompt)).device_ns


def _decode_ns(latency: LatencyModel, context: int) -> int:
    return latency.step_ns(equal_decodes(1, context)).device_ns

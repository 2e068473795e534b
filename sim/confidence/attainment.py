"""The interval of an SLO attainment, from those of mean TTFT and mean TPOT."""

from collections.abc import Mapping
from typing import Any

from sim.metrics.latencies import Slo
from sim.metrics.summary import attainment_if
from sim.runlog import RunLog


def attainment_interval(
    log: RunLog, slo: Slo, summary: Mapping[str, Any], confidence: Mapping[str, Any]
) -> dict[str, float]:
    """The share of requests that keep the SLO if latencies are those at the ends of the intervals.

    All requests are taken to be slower by the same factor as the mean. Example: mean TPOT is 20 ms,
    its interval 18 to 25 ms, its limit 30 ms. A request with 26 ms keeps it as simulated and at the
    lower end (23.4 ms), but not at the upper end (32.5 ms).

    Returns:
        `low`: the share at the upper ends of both latencies; `high`: at their lower ends;
        `expected`: at what is expected, if both have it. Empty if the SLO has no limit, or if TTFT
        or TPOT has no interval.
    """
    ttft, tpot = (confidence.get(name) for name in ("mean_ttft_ms", "mean_tpot_ms"))
    if not slo.limits_ms() or ttft is None or tpot is None:
        return {}
    found: dict[str, float] = {}
    for end, name in (("high", "low"), ("expected", "expected"), ("low", "high")):
        if end in ttft and end in tpot:
            factors = ttft[end] / summary["mean_ttft_ms"], tpot[end] / summary["mean_tpot_ms"]
            share = attainment_if(log, slo, *factors)
            if share is not None:
                found[name] = share
    return found

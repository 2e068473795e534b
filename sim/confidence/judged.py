"""A run's metrics with the latencies that a search judges it by: those simulated, or others.

Of a run whose means have intervals, all times are taken to be as much longer, or shorter, as the
mean of real servers (`sim.confidence.intervals.attainment_interval`).
"""

from collections.abc import Mapping
from typing import Any

from sim.confidence.confidence import may_have_intervals
from sim.confidence.intervals import may_be_expected
from sim.metrics.registry import MetricName
from sim.scenario.load import LoadedScenario
from sim.scenario.search_sections import JudgedBy

ATTAINMENT, GOODPUT = "slo_attainment", "request_goodput"
# The end of a latency's interval, and of the SLO attainment's, by `judged_by`: the attainment is
# lowest at the upper ends of the latencies.
_ENDS = {"expected": ("expected", "expected"), "upper_end": ("high", "low")}


def judged(summary: Mapping[str, Any], name: str, judged_by: JudgedBy) -> float | None:
    """A metric with the latencies that `judged_by` names; as simulated, if it has no interval.

    SLO attainment, goodput, TTFT and TPOT can differ from what was simulated. Goodput changes as
    the attainment does: requests come as fast as simulated.

    A server that cannot keep up with the requests has no interval of TTFT. So at the upper end
    it keeps the SLO for none, and its TTFT is not known: None.
    """
    metric = MetricName.of(name)
    simulated = metric.value(summary)
    if simulated is None or judged_by not in _ENDS:
        return simulated
    if name == ATTAINMENT:
        share = judged_attainment(summary, judged_by)
        return simulated if share is None else share
    if name == GOODPUT:
        share, found = summary.get(ATTAINMENT), judged_attainment(summary, judged_by)
        return simulated if not share or found is None else simulated * (found / share)
    if metric.base.endswith("_ttft_ms") and _is_unknown(summary, judged_by):
        return None
    end, _ = _ENDS[judged_by]
    for mean in ("mean_ttft_ms", "mean_tpot_ms"):
        interval = _confidence(summary).get(mean, {})
        if metric.base.endswith(mean.removeprefix("mean")) and end in interval:
            return simulated * float(interval[end] / summary[mean])
    return simulated


def is_as_simulated(loaded: LoadedScenario, judged_by: JudgedBy) -> bool:
    """Whether it is clear before a run that its SLO attainment is judged as it was simulated."""
    if judged_by == "simulated" or not may_have_intervals(loaded):
        return True
    # Servers that were fitted have ends of intervals, but nothing is expected of them.
    return judged_by == "expected" and (
        loaded.scenario.fitted is not None or not may_be_expected(loaded)
    )


def judged_attainment(summary: Mapping[str, Any], judged_by: JudgedBy) -> float | None:
    """The SLO attainment with the latencies that `judged_by` names; None: those simulated."""
    if _is_unknown(summary, judged_by):
        return 0.0
    _, end = _ENDS.get(judged_by, ("", ""))
    share: float | None = _confidence(summary).get(ATTAINMENT, {}).get(end)
    return share


def _confidence(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    return summary.get("confidence") or {}


def _is_unknown(summary: Mapping[str, Any], judged_by: JudgedBy) -> bool:
    """Whether the upper end of TTFT is sought, and not known though servers like it were measured.

    That is so if the server cannot keep up: the interval of its TTFT is left out.
    """
    found = _confidence(summary)
    is_left_out = "level_pct" in found and "mean_ttft_ms" not in found
    return judged_by == "upper_end" and is_left_out and bool(summary.get("saturated"))

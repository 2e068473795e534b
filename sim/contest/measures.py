"""What a contest compares: the metrics of its cards, and how two values of each are compared."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sim.metrics.registry import Better, MetricName


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric of a contest.

    Attributes:
        name: as results have it; that of a summary, or of `sim.contest.slowdown`.
        heading: what tables call it, with the unit.
        compared: `ratio`: by how many percent one value is above the other; `difference`: by how
            much, in the unit of the heading.
        factor: values are multiplied by this.
    """

    name: str
    heading: str
    better: Better
    compared: Literal["ratio", "difference"]
    factor: float = 1.0

    @property
    def label(self) -> str:
        """What is measured, without its unit."""
        words, _, last = self.heading.rpartition(" ")
        return words if last in ("%", "ms", "requests/s") else self.heading

    @property
    def difference_unit(self) -> str:
        """The unit of a difference; empty for counts."""
        return "%" if self.compared == "ratio" else "points" if "%" in self.heading else ""

    def value(self, summary: Mapping[str, Any]) -> float | None:
        """The value in a run's summary; None if it is not defined."""
        found = MetricName.of(self.name).value(summary)
        if found is None:
            found = MetricName.of(self.name).value(summary.get("contest") or {})
        return None if found is None else self.factor * found


_HIGHER, _LOWER = Better.HIGHER, Better.LOWER
MEASURES = (
    Measure("slo_attainment", "SLO met %", _HIGHER, "difference", 100.0),
    Measure("request_goodput", "goodput requests/s", _HIGHER, "ratio"),
    Measure("median_ttft_ms", "median TTFT ms", _LOWER, "ratio"),
    Measure("p99_ttft_ms", "p99 TTFT ms", _LOWER, "ratio"),
    Measure("median_tpot_ms", "median TPOT ms", _LOWER, "ratio"),
    Measure("p99_tpot_ms", "p99 TPOT ms", _LOWER, "ratio"),
    Measure("cache_hit_rate_pct", "cache hit rate %", _HIGHER, "difference"),
    Measure("max_wait_ms", "longest wait ms", _LOWER, "ratio"),
    Measure("starved_pct", "starved %", _LOWER, "difference"),
    Measure("short_slowdown", "slowdown of short requests", _LOWER, "ratio"),
    Measure("long_slowdown", "slowdown of long requests", _LOWER, "ratio"),
    Measure("jain_slowdown", "Jain's index of slowdowns %", _HIGHER, "difference", 100.0),
    Measure("jain_throughput", "Jain's index of throughput %", _HIGHER, "difference", 100.0),
    Measure("stops", "retractions and preemptions", _LOWER, "difference"),
    Measure("request_throughput", "throughput requests/s", _HIGHER, "ratio"),
)
BY_NAME = {measure.name: measure for measure in MEASURES}

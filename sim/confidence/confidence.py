"""How far to believe a summary: the part `confidence` of it."""

from collections.abc import Iterator, Mapping
from typing import Any

from sim.latency.config import AiconfiguratorLatencyConfig
from sim.scenario.load import LoadedScenario
from sim.scenario.schema import Scenario

# What step times of each kind rest on.
BASES: Mapping[str, str] = {
    "aiconfigurator": "operators measured on the GPU",
    "profile": "steps measured on a device",
    "layers": "published times of layers",
    "recorded": "the steps of one recorded run",
    "roofline": "data sheets: a floor, nothing is measured",
    "linear": "a formula of the scenario: nothing is claimed",
}
_OWN = "a class of the user's: nothing is claimed"


def confidence_of(loaded: LoadedScenario, summary: Mapping[str, Any]) -> dict[str, Any]:
    """What a summary rests on, and intervals of its means where servers like it were measured.

    Returns:
        `basis`: what the step times rest on. `rows`: measured servers of its engine with the same
        model on the same GPU, or what of it was measured (`lacks`). `nearest`: some of those
        that are nearest. `level_pct`, and `low` and `high` of each mean by its name: that share of
        such measured servers was inside; `expected` between them, if `lacks` is nothing: half of
        them was above it. Without measured servers `rows` is 0, and there are no intervals.
    """
    scenario = loaded.scenario
    kind = scenario.latency.kind if hasattr(scenario.latency, "kind") else ""
    found: dict[str, Any] = {"basis": BASES.get(kind, _OWN), "rows": 0}
    if not (summary["completed"] and _is_like_measured(scenario)):
        return found
    # Most runs have step times of another kind, and load nothing for this one.
    from sim.confidence.from_measured import from_measured  # noqa: PLC0415

    found |= from_measured(loaded, summary)
    for name in _not_measured(scenario.workload, is_saturated=summary["saturated"]):
        found.pop(name, None)
    return found


def _is_like_measured(scenario: Scenario) -> bool:
    """Whether it is simulated as the measured servers were.

    They had the host's costs of their engine, no drafts, no stages, and both prefill and decode.
    """
    section = scenario.latency
    if not isinstance(section, AiconfiguratorLatencyConfig):
        return False
    plain = section.pp == 1 and section.efficiency == 1 and scenario.scheduler.drafts is None
    return plain and scenario.host is not None and not scenario.pools


def _not_measured(workload: object, *, is_saturated: bool) -> Iterator[str]:
    """The means that a measured closed loop says nothing about.

    Where requests come at a rate, the rate is the throughput of a server that can serve it; of one
    that cannot, TTFT grows for as long as they come.
    """
    limits = (getattr(workload, name, None) for name in ("max_concurrency", "clients"))
    if not any(limits):
        yield "mean_ttft_ms" if is_saturated else "output_throughput"

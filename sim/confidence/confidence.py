"""How far to believe a summary: the part `confidence` of it."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from sim.confidence.intervals import LACKS, calibration, distances, lacking, spread_of
from sim.confidence.measured import METRICS, measured_servers
from sim.confidence.point import Load, Point, point_of
from sim.scenario.load import LoadedScenario

# The metric of the summary that each interval is about.
_NAMES = {"ttft": "mean_ttft_ms", "tpot": "mean_tpot_ms", "throughput": "output_throughput"}
# How many of the nearest servers are named.
_NUM_NAMED = 3
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
        such measured servers was inside. Without measured servers `rows` is 0, and there are no
        intervals.
    """
    scenario = loaded.scenario
    kind = scenario.latency.kind if hasattr(scenario.latency, "kind") else ""
    found: dict[str, Any] = {"basis": BASES.get(kind, _OWN), "rows": 0}
    load = _load(summary, scenario.replicas)
    if scenario.pools or load is None:
        return found
    point = point_of(scenario, loaded.base_dir, load)
    if point is None:
        return found
    found |= _from_measured(point, summary)
    for name in _not_measured(scenario.workload, is_saturated=summary["saturated"]):
        found.pop(name, None)
    return found


def _not_measured(workload: object, *, is_saturated: bool) -> Iterator[str]:
    """The means that a measured closed loop says nothing about.

    Where requests come at a rate, the rate is the throughput of a server that can serve it; of one
    that cannot, TTFT grows for as long as they come.
    """
    limits = (getattr(workload, name, None) for name in ("max_concurrency", "clients"))
    if not any(limits):
        yield _NAMES["ttft" if is_saturated else "throughput"]


def _load(summary: Mapping[str, Any], replicas: int) -> Load | None:
    num, under_way = summary["completed"], summary["concurrency"]
    if not num or not under_way:
        return None
    num_input, num_output = summary["total_input_tokens"], summary["total_output_tokens"]
    servers = summary.get("mean_replicas") or replicas
    return Load(num_input / num, num_output / num, under_way / servers)


def _from_measured(point: Point, summary: Mapping[str, Any]) -> dict[str, Any]:
    servers, chosen = measured_servers(), calibration()
    everyone = np.ones(len(servers), np.bool_)
    far = distances(servers, point, chosen.nearness)
    lacks = lacking(servers, point, far, everyone, chosen.reach)
    if lacks is None:
        return {}
    median, spread = spread_of(servers, far, everyone, chosen.nearness)
    bounds = np.array(chosen.bounds[lacks])
    ends = np.exp(median[:, None] + bounds * spread[:, None])
    intervals = {
        _NAMES[name]: {"low": value * low, "high": value * high}
        for name, (low, high) in zip(METRICS, ends.tolist(), strict=True)
        if (value := summary.get(_NAMES[name])) is not None
    }
    like_it = servers.with_the(point, "engine", *LACKS[lacks])
    order = np.argsort(np.where(like_it, far, np.inf), kind="stable")
    return {
        "rows": int(like_it.sum()),
        "lacks": lacks,
        "nearest": [servers.described(row) for row in order[:_NUM_NAMED].tolist()],
        "level_pct": chosen.level_pct,
        **intervals,
    }

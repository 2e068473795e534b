"""The intervals of a summary's means, and the measured servers that they are from."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from sim.confidence.fitted import load_of
from sim.confidence.intervals import LACKS, calibration, distances, lacking, spread_of
from sim.confidence.measured import METRICS, MeasuredServers, measured_servers
from sim.confidence.point import Load, Point, point_of
from sim.core.arrays import Float64
from sim.scenario.load import LoadedScenario

# The metric of the summary that each interval is about.
_NAMES = {"ttft": "mean_ttft_ms", "tpot": "mean_tpot_ms", "throughput": "output_throughput"}
_ENDS = ("low", "expected", "high")
# How many groups of the nearest servers are named.
_NUM_NAMED = 3
_NO_LOAD = Load(math.nan, math.nan, math.nan)


def from_measured(loaded: LoadedScenario, summary: Mapping[str, Any]) -> dict[str, Any]:
    """See `sim.confidence.confidence.confidence_of`; empty if nothing near was measured."""
    replicas = summary.get("mean_replicas") or loaded.scenario.replicas
    point = point_of(loaded.scenario, loaded.base_dir, Load(**load_of(summary, replicas)))
    if point is None:
        return {}
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
        _NAMES[name]: dict(zip(_ENDS, (value * factors).tolist(), strict=True))
        for name, factors in zip(METRICS, ends, strict=True)
        if (value := summary.get(_NAMES[name])) is not None
    }
    if lacks != "nothing":
        for interval in intervals.values():
            # Errors of unlike servers do not correct the mean (docs/explanation/accuracy.md).
            del interval["expected"]
    near = _nearest(servers, point, far, lacks)
    return {**near, "level_pct": chosen.level_pct, **intervals}


def nearest_to(loaded: LoadedScenario) -> dict[str, Any]:
    """The measured servers that are nearest to a scenario's, whatever their load; else empty."""
    point = point_of(loaded.scenario, loaded.base_dir, _NO_LOAD)
    if point is None:
        return {}
    servers, chosen = measured_servers(), calibration()
    far = distances(servers, point, chosen.nearness)
    everywhere = dict.fromkeys(LACKS, math.inf)
    lacks = lacking(servers, point, far, np.ones(len(servers), np.bool_), everywhere)
    return {} if lacks is None else _nearest(servers, point, far, lacks)


def _nearest(servers: MeasuredServers, point: Point, far: Float64, lacks: str) -> dict[str, Any]:
    """How many measured servers share all but `lacks` with a point, and the nearest of them."""
    like_it = np.flatnonzero(servers.with_the(point, "engine", *LACKS[lacks]))
    groups: dict[object, list[int]] = {}
    for row in like_it[np.argsort(far[like_it], kind="stable")].tolist():
        groups.setdefault(servers.group(row), []).append(row)
    return {
        "rows": len(like_it),
        "measured": len(servers),
        "lacks": lacks,
        "nearest": [
            {"servers": len(rows), **servers.described(rows[0], point)}
            for rows in list(groups.values())[:_NUM_NAMED]
        ],
    }

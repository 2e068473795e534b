"""The intervals of a summary's means, and the measured servers that they are from."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from sim.confidence.intervals import LACKS, calibration, distances, lacking, spread_of
from sim.confidence.measured import METRICS, measured_servers
from sim.confidence.point import Load, point_of
from sim.scenario.load import LoadedScenario

# The metric of the summary that each interval is about.
_NAMES = {"ttft": "mean_ttft_ms", "tpot": "mean_tpot_ms", "throughput": "output_throughput"}
_ENDS = ("low", "expected", "high")
# How many of the nearest servers are named.
_NUM_NAMED = 3


def from_measured(loaded: LoadedScenario, summary: Mapping[str, Any]) -> dict[str, Any]:
    """See `sim.confidence.confidence.confidence_of`; empty if nothing near was measured."""
    point = point_of(loaded.scenario, loaded.base_dir, _load(summary, loaded.scenario.replicas))
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
            # What other servers were off makes the mean no better (docs/explanation/accuracy.md).
            del interval["expected"]
    like_it = servers.with_the(point, "engine", *LACKS[lacks])
    order = np.argsort(np.where(like_it, far, np.inf), kind="stable")
    return {
        "rows": int(like_it.sum()),
        "lacks": lacks,
        "nearest": [servers.described(row) for row in order[:_NUM_NAMED].tolist()],
        "level_pct": chosen.level_pct,
        **intervals,
    }


def _load(summary: Mapping[str, Any], replicas: int) -> Load:
    num = summary["completed"]
    num_input, num_output = summary["total_input_tokens"], summary["total_output_tokens"]
    servers = summary.get("mean_replicas") or replicas
    return Load(num_input / num, num_output / num, (summary["concurrency"] or 0.0) / servers)

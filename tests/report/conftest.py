"""Small sweeps with made-up numbers."""

from itertools import product

import numpy as np
import pytest

from sim.metrics.summary import PERCENTS
from sim.sweep.results import PointResult, SweepResults


def summary_of(values):
    """A summary with these metrics, and distributions around its mean TTFT."""
    ttft_ms = values.get("mean_ttft_ms", 100.0)
    quantiles = np.geomspace(0.1 * ttft_ms, 10 * ttft_ms, len(PERCENTS)).tolist()
    part = {"mean_ttft_ms": ttft_ms, "p99_ttft_ms": 2 * ttft_ms, "ttft_quantiles_ms": quantiles}
    return {
        "mean_ttft_ms": ttft_ms,
        "p99_ttft_ms": 2 * ttft_ms,
        "cache_hit_rate_pct": 50.0,
        "request_goodput": 5.0,
        "goodput_slos_ms": {"ttft": 500},
        "saturated": False,
        "hot": part,
        "cold": part,
        "tenants": {},
        **{f"{name}_quantiles_ms": quantiles for name in ("ttft", "tpot", "itl", "e2e_latency")},
        **values,
    }


@pytest.fixture
def made_up():
    """Build a sweep: `grid` of values by key, what each setting (and seed) measures, seeds."""

    def make(grid, measured=lambda setting, seed: {}, seeds=(1,), settings=None, failed=()):
        if settings is None:
            settings = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
        points = []
        for setting, seed in product(settings, seeds):
            summary = summary_of(measured(setting, seed))
            values = {**setting, "seed": seed}
            bad = len(points) in failed
            points.append(
                PointResult(values, "a.json", "bad input", None, "it is <bad>")
                if bad
                else PointResult(values, "a.json", "done", summary)
            )
        keys = (*settings[0], *(("seed",) if len(seeds) > 1 else ()))
        return SweepResults.of("study", {"name": "study"}, keys, points)

    return make

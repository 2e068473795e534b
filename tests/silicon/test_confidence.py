"""Intervals of simulated means: that they hold for measured servers that chose none of them."""

import math

import numpy as np
import pytest

pytest.importorskip("aiconfigurator_core", reason="pip install -e '.[aiconfigurator]'")

from silicon.confidence import coverage, folds, placed, sample_of
from silicon.facts import load_rows
from silicon.kept import kept
from silicon.scores import judged
from sim.confidence.intervals import calibration
from sim.confidence.measured import METRICS, measured_servers

ROWS = load_rows()
JUDGED = [row for row in ROWS.values() if row.is_judged]
KEPT = kept()


def sample(half, step):
    """Some rows of a half: one of each `step`."""
    rows = [row for row in JUDGED if row["split"] == half]
    return sample_of(judged(rows[::step], KEPT))


def test_nine_of_ten_intervals_hold_for_servers_that_chose_none():
    """A quarter of the held-out half: three standard errors are 6 %; the page has all of it.

    Also if all servers of the same version, GPU, model or architecture are left out.
    """
    chosen, servers = calibration(), measured_servers()
    found = placed(
        servers, list(folds(servers, sample("held-out", 4))), chosen.nearness, chosen.reach
    )
    bounds = {name: np.array(each) for name, each in chosen.bounds.items()}
    for left_out in bounds:
        each = coverage([one for one in found if one.fold.left_out == left_out], bounds)
        assert each.num_judged >= 0.9 * each.num_rows
        assert (each.held >= 0.82).all()
        if left_out == "nothing":
            assert (each.held <= 0.97).all()
            assert (each.half_width <= [0.35, 0.20, 0.20]).all()
        else:
            assert (each.half_width > 0.20).all()


def test_servers_that_ship_are_those_of_the_development_half():
    """All of them and no other; their errors follow from the means that are kept."""
    servers = measured_servers()
    assert len(servers) == sum(row["split"] == "development" for row in JUDGED)
    few = sample("development", 40).servers
    for row, served in enumerate(few.served):
        same = [place for place, name in enumerate(servers.served) if name == served]
        near = np.abs(servers.errors[same] - few.errors[row]).max(axis=1)
        at = same[int(near.argmin())]
        assert near.min() < 1e-4
        assert np.allclose(servers.sizes[at], few.sizes[row], atol=1e-4)
        assert all(servers.names[name][at] == few.names[name][row] for name in few.names)


def test_errors_of_throughput_follow_from_the_means():
    """Little's law: twice the time of a request is half the throughput."""
    few = sample("development", 40)
    for point, (ttft, tpot, throughput) in zip(few.points, few.servers.errors, strict=True):
        assert -max(ttft, tpot) - 1e-9 <= throughput <= -min(ttft, tpot) + 1e-9
        assert math.isfinite(point.weight_bits)
    assert few.servers.errors.shape == (len(few.points), len(METRICS))

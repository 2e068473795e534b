"""Intervals of simulated prefill and decode servers: whose they are, and that they hold."""

import numpy as np
import pytest

pytest.importorskip("aiconfigurator_core", reason="pip install -e '.[aiconfigurator]'")

from silicon.confidence import calibrated, coverage, folds, placed
from silicon.confidence_disaggregated import sample_of_half
from silicon.facts import load_rows
from sim.confidence.intervals import calibration
from sim.confidence.measured import measured_servers


def test_numbers_that_ship_are_those_of_the_development_half():
    """All of its servers, and the widths that they choose; the nearness is that of others."""
    sample, chosen = sample_of_half("development"), calibration(disaggregated=True)
    rows = [row for row in load_rows().values() if row.is_disaggregated_without_drafts]
    assert len(sample.points) == sum(row["split"] == "development" for row in rows) == 57
    assert calibrated(sample, chosen.nearness) == chosen
    assert chosen.nearness == calibration().nearness
    shipped = measured_servers(disaggregated=True)
    columns = (np.sort(each.errors, axis=0) for each in (shipped, sample.servers))
    assert np.allclose(*columns, atol=1e-5)


def test_nine_of_ten_intervals_hold_for_servers_that_chose_none():
    """68 servers: three standard errors are 11 %."""
    chosen, servers = calibration(disaggregated=True), measured_servers(disaggregated=True)
    held_out = sample_of_half("held-out")
    assert len(held_out.points) == 68
    all_folds = [one for one in folds(servers, held_out) if one.left_out == "nothing"]
    found = placed(servers, all_folds, chosen.nearness, chosen.reach)
    bounds = {name: np.array(each) for name, each in chosen.bounds.items()}
    each = coverage(found, bounds)
    assert each.num_judged == 68
    assert (each.held >= 0.79).all()
    assert (each.half_width <= [0.9, 0.15, 0.2]).all()


def test_another_version_or_model_is_not_told_from_one():
    """Nobody measured two of an engine, so neither may be lacking."""
    assert calibration(disaggregated=True).bounds.keys() == {"nothing", "gpu"}

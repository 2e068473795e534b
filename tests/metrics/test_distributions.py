"""Quantiles of a run's latencies, for all requests and for groups of them."""

import json

import numpy as np
import pytest

from sim.metrics.groups import group_masks
from sim.metrics.summary import PERCENTS, add_quantiles, summarise
from tests.support.run_logs import request_columns, run_log
from tests.support.toy_server import toy_log


@pytest.fixture(scope="module")
def log():
    return toy_log(150, rate_rps=10, prefers_cached=True)


def test_quantiles_of_ttft_are_numpys(log):
    """At every percent of the list, of all, of hot and of cold requests, to the microsecond."""
    summary = add_quantiles(summarise(log), log)
    ttft_ms = (log.requests.first_token_ns - log.requests.arrival_ns) / 1e6
    for found, mask in (
        (summary, slice(None)),
        (summary["hot"], group_masks(log.requests)["hot"]),
        (summary["cold"], group_masks(log.requests)["cold"]),
    ):
        wanted = np.percentile(ttft_ms[mask], PERCENTS)
        assert found["ttft_quantiles_ms"] == pytest.approx(wanted, abs=1e-3)


def test_quantiles_of_itl_count_every_gap(log):
    """A gap that occurs twice counts twice."""
    gaps_ms = np.repeat(log.token_gaps.gap_ns, log.token_gaps.count) / 1e6
    found = add_quantiles(summarise(log), log)["itl_quantiles_ms"]
    assert found == pytest.approx(np.percentile(gaps_ms, PERCENTS), abs=1e-3)


def test_quantiles_leave_the_rest_of_a_summary_as_it_is(log):
    """They are added; nothing is replaced."""
    before = summarise(log)
    after = add_quantiles(before, log)
    assert {key: after[key] for key in before if key not in {"hot", "cold"}} == {
        key: value for key, value in before.items() if key not in {"hot", "cold"}
    }
    assert before["hot"].items() <= after["hot"].items()


def test_quantiles_of_nobody_are_empty_lists():
    """Not null: a list is never a column of the results, whether or not a run finished any."""
    log = run_log(request_columns(status=["rejected"], arrival_ns=[7], tenant=["a"]))
    summary = add_quantiles(summarise(log), log)
    for found in (summary, summary["hot"], summary["tenants"]["a"]):
        assert found["ttft_quantiles_ms"] == []
    json.dumps(summary, allow_nan=False)

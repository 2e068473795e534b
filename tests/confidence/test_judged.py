"""A run judged by latencies that real servers would have."""

import pytest

from sim.confidence.judged import judged

# TTFT is expected to be 1.5 and may be 3 times as long as simulated; TPOT 1.25 and 2 times.
NEAR = {
    "level_pct": 90,
    "mean_ttft_ms": {"low": 50.0, "expected": 150.0, "high": 300.0},
    "mean_tpot_ms": {"low": 8.0, "expected": 12.5, "high": 20.0},
    "slo_attainment": {"low": 0.2, "expected": 0.6, "high": 0.9},
}
RUN = {
    "slo_attainment": 0.8, "request_goodput": 4.0, "mean_ttft_ms": 100.0, "p99_ttft_ms": 200.0,
    "mean_tpot_ms": 10.0, "p99_tpot_ms": 11.0, "p99_itl_ms": 12.0, "saturated": False,
    "tenants": {"chat": {"p99_ttft_ms": 40.0}}, "confidence": NEAR,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "simulated", "expected", "upper_end"),
    [
        ("slo_attainment", 0.8, 0.6, 0.2),
        ("request_goodput", 4.0, 3.0, 1.0),
        ("p99_ttft_ms", 200.0, 300.0, 600.0),
        ("tenants.chat.p99_ttft_ms", 40.0, 60.0, 120.0),
        ("p99_tpot_ms", 11.0, 13.75, 22.0),
        ("p99_itl_ms", 12.0, 12.0, 12.0),
    ],
)
def test_metrics_are_as_much_longer_as_the_means(name, simulated, expected, upper_end):
    """By hand. Other metrics than these are as simulated."""
    found = {how: judged(RUN, name, how) for how in ("simulated", "expected", "upper_end")}
    assert found == pytest.approx(
        {"simulated": simulated, "expected": expected, "upper_end": upper_end}
    )


@pytest.mark.parametrize("confidence", [None, {}, {"basis": "a formula", "rows": 0}])
def test_without_intervals_it_is_as_simulated(confidence):
    """Even if it cannot keep up: nothing is claimed of such servers."""
    run = RUN | {"confidence": confidence, "saturated": True}
    for name in ("slo_attainment", "request_goodput", "p99_ttft_ms"):
        assert judged(run, name, "upper_end") == judged(run, name, "simulated")


def test_where_nothing_is_expected_it_is_as_simulated():
    """The upper ends are known all the same."""
    unlike = {name: {"low": 0.5, "high": 0.9} for name in ("mean_ttft_ms", "slo_attainment")}
    run = RUN | {"confidence": {"level_pct": 90, **unlike}}
    assert judged(run, "slo_attainment", "expected") == 0.8
    assert judged(run, "slo_attainment", "upper_end") == 0.5


def test_nobody_is_sure_of_a_server_that_cannot_keep_up():
    """Its TTFT has no interval: it must not win against one whose upper end is known."""
    near = {"level_pct": 90, "mean_tpot_ms": NEAR["mean_tpot_ms"]}
    run = RUN | {"saturated": True, "confidence": near}
    found = {name: judged(run, name, "upper_end") for name in RUN if name != "tenants"}
    assert (found["slo_attainment"], found["request_goodput"]) == (0.0, 0.0)
    assert (found["p99_ttft_ms"], found["p99_tpot_ms"]) == (None, 22.0)
    assert judged(run, "slo_attainment", "expected") == 0.8


def test_goodput_of_a_run_that_kept_the_slo_for_none_stays():
    """There is nothing to multiply."""
    run = RUN | {"slo_attainment": 0.0, "request_goodput": 0.0}
    assert judged(run, "request_goodput", "upper_end") == 0.0

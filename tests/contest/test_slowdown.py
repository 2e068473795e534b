"""Slowdown is 1 alone on the server; those who wait are found, and named by their size."""

import pytest

from sim.commands.running.simulate import simulate_measured
from sim.contest.slowdown import slowdown_metrics
from sim.des.run import RunOptions
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text


@pytest.fixture
def measured(contest_text):
    """What is measured of a run with `--set` options."""

    def measure(*overrides):
        built = build(load_scenario_text(contest_text, overrides))
        return slowdown_metrics(simulate_measured(built, RunOptions()), built)

    return measure


def part(tenant, num, prompt, rate_rps, output=10):
    return (
        f"{{tenant: {tenant}, workload: {{kind: synthetic, num_requests: {num},"
        f" arrivals: {{kind: poisson, rate_rps: {rate_rps}}},"
        f" prompt_tokens: {{kind: constant, value: {prompt}}},"
        f" output_tokens: {{kind: constant, value: {output}}}}}}}"
    )


def two_tenants(rate_rps, output=10):
    short = part("short", 30, 50, rate_rps, output)
    parts = f"{short}, {part('long', 10, 900, rate_rps / 3, output)}"
    return f"workload={{kind: mix, parts: [{parts}]}}"


def test_alone_on_the_server_nothing_is_slower(measured):
    """A request in ten seconds; prompts are not cut into chunks."""
    plain = ("scheduler.disable_overlap_schedule=true", "scheduler.chunked_prefill_size=1024")
    found = measured(two_tenants(0.1), *plain)
    for name in ("mean_slowdown", "short_slowdown", "long_slowdown", "jain_slowdown"):
        assert found[name] == pytest.approx(1, abs=0.02), name
    assert (found["starved_pct"], found["stops"]) == (0, 0)


def test_short_requests_are_slowed_more_behind_long_ones(measured):
    """First come, first served: a short request waits for a long one many times its own time."""
    found = measured(two_tenants(60.0))
    assert found["short_slowdown"] > 1.2 * found["long_slowdown"] > 2
    assert found["jain_slowdown"] < 0.995


def test_requests_that_wait_ten_times_the_limit_starve(measured):
    """All come at once, a limit of 5 ms: those that wait for more than 50 ms are counted."""
    found = measured(two_tenants(1e4), "slo.ttft_ms=5")
    assert 50 < found["starved_pct"] < 100
    assert measured(two_tenants(1e4), "slo={tpot_ms: 5}")["starved_pct"] is None


def test_stops_count_retractions(measured):
    """Long answers in a small pool, of which little was reserved."""
    small = ("scheduler.max_total_tokens=1536", "scheduler.schedule_conservativeness=0")
    assert measured(two_tenants(200.0, output=200), *small)["stops"] > 0


def test_one_tenant_has_no_index(measured):
    assert measured()["jain_slowdown"] is None

"""The scenarios of the benchmarks can be built, and small ones run."""

from dataclasses import replace

import pytest

from bench.axes import axes
from bench.places import SCENARIOS
from bench.races import STEP_TIMES
from bench.rules import comparisons
from bench.scaling import measure_growth
from sim.latency.config import LinearLatencyConfig
from sim.scenario.load import load_scenario, load_scenario_text


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda path: path.stem)
def test_scenarios_are_valid(path):
    """As the user's command line reads them."""
    assert load_scenario(path, []).scenario.name == f"bench-{path.stem}"


@pytest.mark.parametrize("axis", axes(), ids=lambda axis: axis.name)
def test_axes_every_size_is_valid(axis):
    """And what is subtracted from it."""
    for size in axis.sizes:
        for scenario in (axis.scenario, axis.scenario_without):
            assert scenario is None or load_scenario_text(scenario(size), []).scenario


def test_measure_growth_of_a_burst_has_a_cost_for_each_size():
    """In milliseconds a request."""
    burst = next(axis for axis in axes() if axis.name.startswith("queue"))
    growth = measure_growth(replace(burst, sizes=(4, 16)), repeats=1)
    assert growth.sizes == [4, 16]
    assert all(0.01 < cost_ms < 1_000 for cost_ms in growth.costs)


def test_comparisons_overrides_are_valid():
    """Each is a scenario of ours."""
    for comparison in comparisons():
        assert load_scenario(SCENARIOS / "agreement.yaml", list(comparison.ours)).scenario


def test_step_times_are_those_of_the_scenario():
    """Both simulators race with the same hardware."""
    latency = load_scenario(SCENARIOS / "mooncake.yaml", []).scenario.latency
    assert isinstance(latency, LinearLatencyConfig)
    given = dict(zip(STEP_TIMES[::2], map(float, STEP_TIMES[1::2]), strict=True))
    assert given == {
        "--step-s": latency.step_s,
        "--prefill-token-s": latency.per_prefill_token_s,
        "--decode-row-s": latency.per_decode_request_s,
        "--context-token-s": latency.per_context_token_s,
    }

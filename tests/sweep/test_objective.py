"""How a setting is judged over its seeds."""

import pytest

from sim.scenario.load import load_scenario_text
from sim.scenario.search_sections import TuneSection
from sim.sweep.tune.plan import score
from tests.support.disaggregated import DISAGGREGATED

RANGES = {"replicas": {"kind": "int", "min": 1, "max": 9}}


def section(**keys):
    return TuneSection.model_validate({"ranges": RANGES, "num_trials": 5, **keys})


@pytest.fixture
def scenario(base_text):
    return load_scenario_text(base_text, ["replicas=3"]).scenario


def summary(goodput, attainment):
    return {"request_goodput": goodput, "slo_attainment": attainment}


def test_goodput_is_raised_by_lowering_its_negative_mean(scenario):
    """A run in which nothing finished has none of it."""
    found = score(section(objective="goodput"), scenario, [summary(4.0, 0.8), summary(None, None)])
    assert (found.objective, found.sought, found.shortfall) == ((4.0, 0.0), -2.0, None)
    assert found.meets


def test_least_attainment_is_held_against_the_mean_over_seeds(scenario):
    """Met exactly is met."""
    runs = [summary(1.0, 0.75), summary(1.0, 1.0)]
    met = score(section(objective="goodput", min_slo_attainment=0.875), scenario, runs)
    missed = score(section(objective="goodput", min_slo_attainment=0.9), scenario, runs)
    assert (met.meets, met.shortfall) == (True, 0.0)
    assert (missed.meets, missed.shortfall) == (False, pytest.approx(0.025))


def test_cost_is_replicas_times_price_and_ties_go_to_the_slo(scenario):
    """No SLO attainment makes up for a replica, were there 4096 of them."""
    cost = section(objective="cost", min_slo_attainment=0.5)
    good, bad = (score(cost, scenario, [summary(1.0, share)]) for share in (1.0, 0.6))
    assert good.objective == bad.objective == (3.0,)
    assert good.sought < bad.sought
    many = [scenario.model_copy(update={"replicas": n}) for n in (4095, 4096)]
    fewer = score(cost, many[0], [summary(1.0, 0.5)])
    more = score(cost, many[1], [summary(1.0, 1.0)])
    assert fewer.sought < more.sought
    priced = section(objective="cost", min_slo_attainment=0.5, price_per_hour=2.5)
    assert score(priced, scenario, [summary(1.0, 1.0)]).objective == (7.5,)


def test_constraints_are_limits_of_means_over_seeds(scenario):
    """The worst of all conditions decides; a metric that no run has is far above its limit."""
    limits = {"p99_ttft_ms": 200.0, "tenants.chat.p99_ttft_ms": 50.0}
    both = section(objective="cost", constraints=limits, min_slo_attainment=0.9)

    def run(ttft, chat, attainment=1.0):
        return summary(1.0, attainment) | {
            "p99_ttft_ms": ttft,
            "tenants": {"chat": {"p99_ttft_ms": chat}},
        }

    assert score(both, scenario, [run(100.0, 10.0), run(300.0, 90.0)]).meets
    over = score(both, scenario, [run(100.0, 60.0)])
    assert (over.meets, over.shortfall) == (False, pytest.approx(0.2))
    assert score(both, scenario, [run(100.0, 10.0, 0.6)]).shortfall == pytest.approx(0.3)
    assert score(both, scenario, [run(None, 10.0), run(1.0, 1.0)]).shortfall == 1e6


def test_cost_of_server_pools_is_that_of_all_their_gpus():
    """Two, one, and two servers of two ranks each: seven."""
    loaded = load_scenario_text(DISAGGREGATED)
    cost = section(objective="cost", min_slo_attainment=0.5)
    pools = [pool.scenario for pool in loaded.pools.values()]
    assert score(cost, loaded.scenario, [summary(1.0, 1.0)], pools).objective == (7.0,)
    priced = section(objective="cost", min_slo_attainment=0.5, price_per_hour=2.5)
    assert score(priced, loaded.scenario, [summary(1.0, 1.0)], pools).objective == (17.5,)


def test_settings_are_judged_by_the_latencies_that_the_section_names(scenario):
    """Simulated, the fast one has more goodput and keeps its limits; at the upper end it has not.

    By default with the latencies that are expected.
    """

    def run(goodput, expected, lowest, factor):
        near = {
            "level_pct": 90,
            "mean_ttft_ms": {"low": 100.0, "expected": 100.0, "high": factor * 100.0},
            "slo_attainment": {"low": lowest, "expected": expected, "high": 1.0},
        }
        times = {"mean_ttft_ms": 100.0, "p99_ttft_ms": 150.0}
        return [summary(goodput, 0.8) | times | {"confidence": near}]

    fast, sure = run(10.0, 0.8, 0.2, 3.0), run(8.0, 0.8, 0.7, 1.2)

    def scores(**keys):
        asked = section(objective="goodput", **keys)
        return [score(asked, scenario, runs) for runs in (fast, sure)]

    simulated, upper = scores(judged_by="simulated"), scores(judged_by="upper_end")
    assert simulated == scores() == scores(judged_by="expected")
    assert [one.objective for one in simulated] == [(10.0,), (8.0,)]
    assert [one.objective for one in upper] == [pytest.approx((2.5,)), pytest.approx((7.0,))]
    least = {"min_slo_attainment": 0.6}
    assert [one.meets for one in scores(judged_by="upper_end", **least)] == [False, True]
    limits = {"constraints": {"p99_ttft_ms": 200.0}}
    assert [one.meets for one in scores(**limits)] == [True, True]
    assert [one.meets for one in scores(judged_by="upper_end", **limits)] == [False, True]

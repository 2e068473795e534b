"""Results of a search: the best trial, how sure that is, and the front."""

import pytest

from sim.report.search_tables import best_table, front_table, method_in_words, verdicts
from sim.sweep.tune.files import tune_json
from sim.sweep.tune.results import TRIAL_METRICS, TrialResult, TuneResults


def trial(number, objective, attainment=(1.0, 1.0, 1.0), *, ttft=100.0, rate=50.0, meets=True):
    """A trial of three seeds, in a search for goodput."""
    runs = dict.fromkeys(TRIAL_METRICS, (7.0, 7.0, 7.0))
    runs |= {"slo_attainment": attainment, "p99_ttft_ms": (ttft,) * 3}
    runs |= {"output_throughput": (rate,) * 3}
    return TrialResult(
        trial=number,
        settings={"scheduler.page_size": number},
        status="done",
        error=None,
        objective=objective,
        sought=-sum(objective),
        meets=meets,
        runs=runs,
    )


def failed(number):
    return TrialResult(
        trial=number, settings={"scheduler.page_size": 0}, status="failed", error="no", runs={}
    )


def results(*trials, objective="goodput", least=None):
    return TuneResults(
        name="study",
        objective=objective,
        unit="requests/s" if objective == "goodput" else "replicas",
        method="search",
        num_settings=None,
        least_attainment=least,
        keys=("scheduler.page_size",),
        seeds=(1, 2, 3),
        trials=trials,
    )


def test_results_rank_the_slo_before_the_objective_and_ties_by_age():
    """What misses the SLO is behind all that meets it, however much it gives."""
    found = results(
        trial(0, (5.0, 5.0, 5.0)),
        failed(1),
        trial(2, (9.0, 9.0, 9.0), (0.5, 0.6, 0.7), meets=False),
        trial(3, (8.0, 8.0, 8.0)),
        trial(4, (9.0, 9.0, 9.0), (0.7, 0.7, 0.7), meets=False),
        trial(5, (8.0, 8.0, 8.0)),
        least=0.9,
    )
    assert [t.trial for t in found.ranked()] == [3, 5, 0, 4, 2]
    assert (found.winner.trial, found.runner_up.trial) == (3, 5)


def test_results_difference_is_taken_seed_by_seed():
    """Seeds differ by far more than the settings do: pairs tell them apart all the same."""
    own, better = trial(0, (1.0, 50.0, 99.0)), trial(1, (2.0, 51.1, 99.9))
    found = results(own, better).difference(own)
    assert found.metric == "objective"
    assert found.interval.mean == pytest.approx(1.0)
    # Student's quantile for two degrees of freedom, times 0.1 / sqrt(3).
    assert found.interval.half_width == pytest.approx(4.30265 * 0.1 / 3**0.5, rel=1e-5)
    assert found.is_distinguishable
    noisy = trial(1, (2.0, 70.0, 85.0))
    assert results(own, noisy).difference(own).is_distinguishable is False


def test_results_of_one_seed_say_nothing_of_chance():
    """No interval, no claim."""
    one = [
        TrialResult(
            trial=number,
            settings={},
            status="done",
            error=None,
            objective=(float(number),),
            sought=-float(number),
            meets=True,
            runs=dict.fromkeys(TRIAL_METRICS, (1.0,)),
        )
        for number in range(2)
    ]
    found = results(*one)
    assert found.difference(one[0]).is_distinguishable is None
    assert "it takes 3 seeds to say whether that is chance" in verdicts(found)[0]


def test_results_of_costs_compare_the_slo_where_costs_are_equal():
    """Cost is the same with every seed; what may be chance is whether the SLO is met."""
    own = trial(0, (4.0, 4.0, 4.0), (1.0, 1.0, 1.0))
    cheap = trial(1, (2.0, 2.0, 2.0), (0.99, 0.97, 0.98))
    cheaper_made_worse = trial(2, (2.0, 2.0, 2.0), (0.95, 0.94, 0.93))
    trials = [
        TrialResult(**{name: getattr(t, name) for name in t.__slots__} | {"sought": sought})
        for t, sought in ((own, 4.0), (cheap, 2.0), (cheaper_made_worse, 2.1))
    ]
    found = results(*trials, objective="cost", least=0.95)
    assert found.winner.trial == 1
    assert found.difference(trials[0]).metric == "objective"
    assert found.difference(trials[0]).is_distinguishable
    assert found.difference(trials[2]).metric == "slo_attainment"
    assert verdicts(found) == [
        "Winner minus the scenario as written: -2.00 replicas, the same for every seed.",
        (
            "Winner minus the runner-up: 4.00 ± 2.48 points of SLO attainment at equal cost, seed"
            " by seed: distinguishable."
        ),
        "SLO attainment 98.00 (95.52 to 100) %, wanted 95 %: met.",
    ]
    doubtful = results(*trials, objective="cost", least=0.96)
    assert verdicts(doubtful)[-1].endswith("met on average, but the interval reaches below.")


def test_results_front_holds_who_is_not_beaten_on_all_axes():
    """One is the best, one the quickest, one gives most tokens; the last is beaten by the first."""
    best = trial(0, (9.0, 9.0, 9.0), ttft=300.0)
    quick = trial(1, (5.0, 5.0, 5.0), ttft=100.0)
    most = trial(2, (4.0, 4.0, 4.0), ttft=200.0, rate=80.0)
    beaten = trial(3, (8.0, 8.0, 8.0), ttft=300.0)
    found = results(best, quick, most, beaten, failed(4))
    assert [t.trial for t in found.front()] == [0, 1, 2]
    assert [line.split()[0] for line in front_table(found).text().splitlines()[2:]] == [
        "0",
        "1",
        "2",
    ]


def test_results_without_any_say_so():
    """Everything failed: no winner, no table of metrics, still JSON."""
    found = results(failed(0), failed(1))
    assert verdicts(found) == ["No trial has results."]
    assert "2 trials (0 with results)" in method_in_words(found)
    assert best_table(found).text().splitlines()[0].split() == ["as", "written"]
    assert '"winner": null' in tune_json(found, (), {})


def test_results_scenario_that_cannot_be_bettered_is_said_to_be():
    """It wins ties."""
    found = results(trial(0, (5.0, 5.0, 5.0)), trial(1, (5.0, 5.0, 5.0)))
    assert found.winner.trial == 0
    assert verdicts(found)[0] == "Nothing tried is better than the scenario as written."
    assert "seed by seed: not distinguishable" in verdicts(found)[1]

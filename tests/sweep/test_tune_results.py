"""Results of a search: the best trial, how sure that is, and the front."""

from dataclasses import replace

import pytest

from sim.report.search_tables import best_table, front_table, method_in_words, verdicts
from sim.sweep.tune.files import tune_json, tune_rows
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


NEAR = {
    "level_pct": 90,
    "measured": 798,
    "mean_ttft_ms": {"low": 50.0, "high": 300.0},
    "slo_attainment": {"low": 0.7, "expected": 0.8, "high": 0.9},
}


def judged_results(by, share, **more):
    """A search that was judged by other latencies: the first trial has an interval."""
    near = replace(
        trial(0, (5.0, 5.0, 5.0)), judged={"slo_attainment": (share,) * 3}, confidence=NEAR
    )
    return replace(results(near, trial(1, (4.0, 4.0, 4.0)), **more), judged_by=by)


def test_intervals_of_the_best_are_rows_and_columns():
    """A trial without one has an empty cell; a search without any has neither."""
    found = judged_results("upper_end", 0.7)
    rows = {label: cells for label, *cells in best_table(found).rows}
    # Winner, runner-up and as written.
    share, ttft = "70.00 to 90.00 (expected 80.00)", "50.00 to 300.0"
    assert rows["SLO met %, 90 % interval"] == [share, "-", share]
    assert rows["mean TTFT ms, 90 % interval"] == [ttft, "-", ttft]
    first, second = tune_rows(found)
    ends = {"mean_ttft_ms_low": 50.0, "mean_ttft_ms_high": 300.0,
            "slo_attainment_low": 0.7, "slo_attainment_high": 0.9}  # fmt: skip
    assert {
        name: value for name, value in first.items() if name.endswith(("_low", "_high"))
    } == ends
    assert [second[name] for name in ends] == [None] * 4
    plain = results(trial(0, (5.0, 5.0, 5.0)))
    assert not any(name.endswith(("_low", "_high")) for name in tune_rows(plain)[0])
    assert not any("interval" in label for label, *_ in best_table(plain).rows)


def test_verdicts_say_by_which_latencies_was_judged():
    """In the words of `simulate plan`."""
    upper = judged_results("upper_end", 0.7, least=0.6)
    assert "judged at the upper ends of their 90 % intervals" in method_in_words(upper)
    assert verdicts(upper)[-1] == (
        "Nine of ten such servers meet it: at the upper ends of their intervals, the SLO"
        " attainment is 70 %."
    )
    unasked = verdicts(judged_results("upper_end", 0.7))
    assert unasked[-1].startswith("At the upper ends of their intervals, ")
    expected = verdicts(judged_results("expected", 0.8))
    assert expected[-1] == (
        "With the latencies expected of such servers, the SLO attainment is 80 %."
    )
    plain = replace(results(trial(0, (5.0, 5.0, 5.0))), judged_by="upper_end")
    assert verdicts(plain)[-1] == "Judged as simulated: it has no interval of the SLO attainment."
    assert "judged" not in method_in_words(plain)


def test_winner_that_misses_as_simulated_says_so():
    """It keeps the SLO often enough only with the latencies expected."""
    own = trial(0, (5.0, 5.0, 5.0), (0.7, 0.7, 0.7))
    told = "SLO attainment 70.00 (70.00 to 70.00) %, wanted 75 %: missed as simulated."
    assert told in verdicts(results(own, least=0.75))


def test_limits_are_told_with_the_latencies_judged():
    """A limit that is kept as simulated may be missed at the upper end."""
    own = replace(trial(0, (5.0, 5.0, 5.0), ttft=100.0), judged={"p99_ttft_ms": (900.0,) * 3})
    found = replace(results(own), limits={"p99_ttft_ms": 1000.0}, judged_by="upper_end")
    assert verdicts(found)[-1] == (
        "p99 TTFT (ms) 900.0 ± 0.00 at the upper ends of their 90 % intervals, at most 1,000: met."
    )


def test_at_equal_cost_the_judged_attainment_decides():
    """The runner-up keeps the SLO more often as simulated, and less often on real servers."""
    better = replace(trial(0, (4.0,) * 3, (0.8,) * 3), judged={"slo_attainment": (0.75,) * 3})
    other = replace(trial(1, (4.0,) * 3, (0.9,) * 3), judged={"slo_attainment": (0.7,) * 3})
    found = results(better, other, objective="cost").difference(other)
    assert (found.metric, found.interval.mean) == ("slo_attainment", pytest.approx(0.05))

"""Differences of a contest: per traffic and load, over all traffic, without those who failed."""

import pytest

from sim.contest.capacity import Capacity
from sim.contest.measures import BY_NAME
from sim.contest.pictures import draw_contest
from sim.contest.results import ContestCell, ContestResults, Overall
from sim.contest.tables import slo_line, traffic_card, where_lines
from sim.metrics.registry import Better
from sim.workers.executor import TaskOutcome, TaskStatus

TTFT, JAIN = BY_NAME["p99_ttft_ms"], BY_NAME["jain_throughput"]
# By how much a contestant's p99 TTFT is above the reference's, by traffic.
FACTORS = {"fcfs": {"own": 1.0, "mine": 1.0}, "lpm": {"own": 2.0, "mine": 0.5},
           "vllm": {"own": 1.21, "mine": 1.0}}  # fmt: skip


def summary(cell, seed):
    """A run; only traffic `mine` has tenants. Seeds differ tenfold, ratios by a percent."""
    factor = FACTORS[cell.contestant][cell.traffic]
    ttft_ms = 10**seed * factor * (1.0 if factor == 1 else 1.01 ** (seed - 2))
    jain = (0.9 if cell.contestant == "fcfs" else 0.8) if cell.traffic == "mine" else None
    # Hits are told apart in no seed, goodput under `own` surely.
    gains = (2.02, 2.0, 1.98) if cell.traffic == "own" else (1.01, 0.9, 1.2)
    gain = 1.0 if cell.contestant == "fcfs" else gains[seed - 1]
    return {
        "p99_ttft_ms": ttft_ms,
        "jain_throughput": jain,
        "request_goodput": 3.0 * seed * gain,
        "cache_hit_rate_pct": 50.0 + seed * (cell.contestant == "lpm"),
        "duration": seed,
        "mean_ttft_ms": 1,
    }


@pytest.fixture
def results(planned):
    """The results of a contest; the runs of these contestants with seed 3 under `mine` failed."""

    def make(failed=()):
        contest = planned()
        outcomes = {}
        for name in contest.settings:
            for traffic in contest.traffic:
                for load in contest.section.loads:
                    cell = ContestCell(name, traffic.name, load)
                    outcomes[cell] = tuple(
                        TaskOutcome("key", TaskStatus.BAD_INPUT, message="no order")
                        if name in failed and (traffic.name, seed) == ("mine", 3)
                        else TaskOutcome("key", TaskStatus.DONE, summary(cell, seed))
                        for seed in contest.seeds
                    )
        capacities = {traffic.name: Capacity(1.0, 1.0, 0.9) for traffic in contest.traffic}
        return ContestResults(contest, capacities, outcomes)

    return make


def test_difference_of_a_cell_is_that_of_its_traffic(results):
    found = results().differences(TTFT)
    assert set(found) == {
        ContestCell(name, traffic, load)
        for name in ("lpm", "vllm")
        for traffic in ("own", "mine")
        for load in (0.8, 1.2)
    }
    assert found[ContestCell("lpm", "own", 0.8)].mean == pytest.approx(100)
    assert found[ContestCell("lpm", "own", 0.8)].verdict(TTFT.better) == "worse"
    assert found[ContestCell("lpm", "mine", 0.8)].verdict(TTFT.better) == "better"
    assert found[ContestCell("vllm", "mine", 1.2)].verdict(TTFT.better) == "same"


def test_difference_over_all_traffic_is_the_mean_ratio(results):
    """Twice and half as long is as long; 1.21 and 1 are 10 % longer."""
    found = results().overall(TTFT)
    assert found[Overall("lpm", 0.8)].mean == pytest.approx(0, abs=1e-9)
    assert found[Overall("vllm", 0.8)].mean == pytest.approx(10)


def test_traffic_without_a_value_does_not_count(results):
    found = results().overall(JAIN)[Overall("lpm", 1.2)]
    assert found.mean == pytest.approx(-10)
    assert found.verdict(Better.HIGHER) == "worse"
    assert results().differences(JAIN)[ContestCell("lpm", "own", 0.8)].mean is None


def test_card_says_where_and_in_which_unit(results):
    """Ratios are in percent, shares in points; the unit of the values is left out."""
    better, worse = where_lines(results(), "lpm")
    assert better.startswith("Better: goodput: own at 0.8 (+99.99 %), 1.2 (+99.99 %); ")
    assert better.endswith("; p99 TTFT: mine at 0.8 (-50.00 %), 1.2 (-50.00 %).")
    assert "Jain's index of throughput: mine at 0.8 (-10.00 points), 1.2" in worse


def test_card_has_a_line_for_each_traffic_also_where_nothing_is_marked(results):
    """Under `own` goodput doubles, more surely than by chance; under `mine` it may not differ."""
    table = traffic_card(results(), "lpm")
    assert [column.header for column in table.columns] == ["goodput %", "at 0.8", "at 1.2"]
    assert table.cells() == [
        ["own", *["+99.99 (+95.09 to +105.0) ▲"] * 2],
        ["mine", *["+2.94 (-28.16 to +47.50)"] * 2],
    ]


def test_whiskers_of_a_picture_are_of_the_paired_difference(results):
    """With lpm hits differ by 1, 2 and 3 points: 95 % between -0.48 and 4.48, about its mean."""
    picture = draw_contest(results())["p99_ttft_ms"].picture
    [own, _] = picture.panels
    of_lpm = [mark for mark in own.marks if mark.line == "lpm"]
    across, up, point = ((list(mark.x), list(mark.y)) for mark in of_lpm)
    assert point[1] == [52]
    assert up[0] == [point[0][0]] * 2
    assert up[1] == pytest.approx([49.52, 54.48], abs=0.01)
    assert across[1] == [52, 52]
    ratio = across[0][1] / across[0][0]
    assert ratio == pytest.approx(1.01 ** (2 * 2.484), rel=1e-3)
    assert len([mark for mark in own.marks if mark.line == "fcfs"]) == 1


def test_first_table_is_of_the_higher_of_two_loads_as_near_to_the_capacity(results):
    found = results()
    assert found.loads == (0.8, 1.2)
    assert found.usual_load == 1.2


def test_slo_is_said_with_its_limits(results):
    words = slo_line(results().contest.base.scenario.slo)
    assert words == "SLO: TTFT at most 500 ms, TPOT at most 50 ms"


def test_contestant_with_a_failed_run_takes_no_part(results):
    found = results(failed=["lpm"])
    assert found.contestants == ["fcfs", "vllm"]
    assert {name for name, _, _ in found.differences(TTFT)} == {"vllm"}
    cell, outcome = found.failures["lpm"]
    assert (cell, outcome.message) == (ContestCell("lpm", "mine", 0.8), "no order")


def test_the_correction_is_over_all_contestants_traffic_and_loads(results):
    """Of two contestants, two kinds of traffic and two loads the surest counts eight times."""
    found = results().differences(TTFT)
    surest = min(one.chance for one in found.values())
    assert len(found) == 8
    assert 0 < surest < 0.001
    assert min(one.corrected for one in found.values()) == pytest.approx(8 * surest)

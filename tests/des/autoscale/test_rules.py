"""What each rule recommends, computed by hand; Dynamo's rule against Dynamo's own decisions."""

import json
from pathlib import Path

import pytest

from sim.des.autoscale.rules import (
    DynamoRule,
    Observed,
    ReplicaLoad,
    SaturationRule,
    ScheduleRule,
    SloRule,
    TargetRule,
    Thresholds,
    arrival_rate,
    mean_total,
)

CASES = json.loads((Path(__file__).parent / "dynamo_cases.json").read_text(encoding="utf-8"))
# Dynamo's thresholds by its target.
DYNAMO = {"throughput": (1.0, 0.6), "latency": (0.4, 0.1)}
WAITING = mean_total(lambda load: load.waiting)
LLM_D = SaturationRule(Thresholds(0.8, 5, 0.1, 3))


def load(waiting=0, running=0, kv_used=0.0, kv_wanted=0.0):
    return ReplicaLoad(waiting, running, kv_used, kv_wanted)


def seen(*samples, wanted=None, up=None, draining=0, arrived=0, ttft_ms=(), tpot_ms=(), now_s=60):
    """Fifteen seconds in which the replicas had these loads at each sample."""
    up = len(samples[-1]) if up is None else up
    return Observed(
        now_ns=now_s * 10**9,
        interval_s=15.0,
        num_wanted=up if wanted is None else wanted,
        num_up=up,
        num_draining=draining,
        samples=[dict(enumerate(loads)) for loads in samples],
        num_arrived=arrived,
        ttft_ms=ttft_ms,
        tpot_ms=tpot_ms,
    )


@pytest.mark.parametrize(
    ("waiting", "wanted", "expected"),
    [
        # total / target, rounded up
        ([9, 9], 2, 5),
        ([16, 1], 2, 5),
        ([0, 0, 0], 3, 0),
        # A tenth more or less than 3 x 4 = 12 is near enough; beyond it is not.
        ([13, 0, 0], 3, 3),
        ([14, 0, 0], 3, 4),
        ([11, 0, 0], 3, 3),
        ([10, 0, 0], 3, 3),
        ([8, 0, 0], 3, 2),
        # Replicas that are still starting count with nothing: 18 is 9 for each of two.
        ([18], 2, 5),
        ([18], 5, 5),
    ],
)
def test_target_rule_is_that_of_kubernetes(waiting, wanted, expected):
    """Ceil(total / 4) unless total / (4 x replicas) is within 0.9 to 1.1."""
    rule = TargetRule(WAITING, 4, 0.1)
    loads = [load(waiting=number) for number in waiting]
    assert rule.recommend(seen(loads, wanted=wanted)) == expected


def test_target_rule_takes_the_mean_over_the_samples():
    """6, 12 and 30 waiting requests are 16 on average."""
    rule = TargetRule(WAITING, 4, 0.1)
    samples = [[load(waiting=6)], [load(waiting=12)], [load(waiting=20), load(waiting=10)]]
    assert rule.recommend(seen(*samples)) == 4


def test_target_rule_without_a_look_recommends_nothing():
    """There is no metric yet, so the number stays."""
    assert TargetRule(WAITING, 4, 0.1).recommend(seen([load()])._replace(samples=[])) is None


def test_rate_rule_counts_arrivals():
    """60 requests in 15 s at 1.5 requests/s for each replica: 4 / 1.5 is 2.7."""
    assert TargetRule(arrival_rate, 1.5, 0.1).recommend(seen([load()], arrived=60)) == 3


SLO = {"ttft": 1000.0, "tpot": 50.0}


def slo_rule(**settings):
    return SloRule(SLO, 90, **({"tolerance": 0.1, "shrink_below": 0.8} | settings))


@pytest.mark.parametrize(
    ("ttft_ms", "tpot_ms", "expected"),
    [
        ([2_000] * 9, [40] * 9, 4),
        ([500] * 9, [80] * 9, 4),
        # 1.05 of the limit is tolerated; no room for one replica less either.
        ([1_050] * 9, [40] * 9, 2),
        # With one replica less all is twice as much: 800 ms is just allowed, 802 is not.
        ([400] * 9, [20] * 9, 1),
        ([401] * 9, [20] * 9, 2),
        ([400] * 9, [21] * 9, 2),
    ],
)
def test_slo_rule_grows_by_the_ratio_and_shrinks_by_one(ttft_ms, tpot_ms, expected):
    """ceil(2 x ratio), or one less of two if twice the latencies are within 0.8 of the limits."""
    two = seen([load(), load()], ttft_ms=ttft_ms, tpot_ms=tpot_ms)
    assert slo_rule().recommend(two) == expected


def test_slo_rule_looks_at_its_percentile():
    """The 50th of these latencies is 1 ms, the 100th 5 s."""
    late = seen([load(), load()], ttft_ms=[1, 1, 1, 1, 5_000])
    median, highest = (
        SloRule(SLO, percentile, tolerance=0.1, shrink_below=0.8) for percentile in (50, 100)
    )
    assert (median.recommend(late), highest.recommend(late)) == (1, 10)


def test_slo_rule_shrinks_only_into_room_and_only_when_nothing_changes():
    """Requests that need 60 % of each of two pools do not fit into one."""
    good = {"ttft_ms": [1], "tpot_ms": [1]}
    idle, full = load(), load(kv_wanted=0.6)
    assert slo_rule().recommend(seen([idle, idle], **good)) == 1
    assert slo_rule().recommend(seen([idle, idle])) == 1
    assert slo_rule().recommend(seen([full, full], **good)) == 2
    assert slo_rule().recommend(seen([idle, idle], wanted=3, **good)) == 3
    assert slo_rule().recommend(seen([idle, idle], draining=1, **good)) == 2
    assert slo_rule().recommend(seen([idle], **good)) == 1


def test_slo_rule_growing_never_takes_back_what_starts():
    """Two replicas, three more on their way, a ratio of 2: four would do, five are wanted."""
    late = {"ttft_ms": [2_000]}
    assert slo_rule().recommend(seen([load(), load()], wanted=5, **late)) == 5


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_dynamo_rule_decides_as_dynamo(case):
    """The decisions of Dynamo 1.6.1's own planner (oracle/dynamo/planner_cases.py)."""
    rule = DynamoRule(*DYNAMO[case["target"]])
    loads = [load(kv_wanted=tokens / case["kv_tokens"]) for tokens in case["wanted_tokens"]]
    assert rule.recommend(seen(loads)) == case["desired"]


def test_dynamo_cases_have_every_decision():
    """More, fewer, as many; with both targets."""
    kinds = {(case["target"], case["desired"] - len(case["wanted_tokens"])) for case in CASES}
    assert kinds == {(target, change) for target in DYNAMO for change in (-1, 0, 1)}


def test_dynamo_rule_waits_while_replicas_start_or_drain():
    """However high the load."""
    rule = DynamoRule(1.0, 0.6)
    full = [load(kv_wanted=3.0)]
    assert rule.recommend(seen(full)) == 2
    assert rule.recommend(seen(full, wanted=2)) == 2
    assert rule.recommend(seen(full, draining=1)) == 1


@pytest.mark.parametrize(
    ("loads", "expected"),
    [
        # Mean room 0.8 - 0.75 = 0.05 of the pool is less than 0.1.
        ([(0.75, 0), (0.75, 0)], 3),
        # Room for 5 - 3 = 2 requests is less than 3.
        ([(0.1, 3), (0.1, 3)], 3),
        # Two of three are saturated; the third alone has enough room, but one does not suffice.
        ([(0.8, 0), (0.1, 5), (0.1, 0)], 3),
        # All are saturated.
        ([(0.9, 9), (0.9, 9)], 3),
        # Of 0.35 each, one replica would hold 0.7: just enough is left.
        ([(0.35, 0), (0.35, 0)], 1),
        ([(0.36, 0), (0.36, 0)], 2),
        # One waiting request each: 2 after the redistribution leave room for 3.
        ([(0.1, 1), (0.1, 1)], 1),
        ([(0.1, 1), (0.1, 2)], 2),
        ([(0.0, 0)], 1),
    ],
)
def test_saturation_rule_is_that_of_llm_d(loads, expected):
    """Thresholds 0.8 and 5, triggers 0.1 and 3."""
    assert LLM_D.recommend(seen([load(kv_used=kv, waiting=n) for kv, n in loads])) == expected


def test_saturation_rule_takes_the_peaks_of_the_interval():
    """A queue of five that is gone again still counts; that of a replica that left does not."""
    gone = [load(waiting=9), load(waiting=5)]
    now = [load()]
    assert LLM_D.recommend(seen(gone, now)) == 2
    assert LLM_D.recommend(seen([load(), load(waiting=9)], now)) == 1


@pytest.mark.parametrize(("now_s", "expected"), [(0, 1), (99, 1), (100, 5), (300, 2), (1_150, 5)])
def test_schedule_rule_follows_its_timetable_again_and_again(now_s, expected):
    """One, from 100 s on five, from 300 s on two, and from 1000 s on anew."""
    rule = ScheduleRule([(0, 1), (100 * 10**9, 5), (300 * 10**9, 2)], 1_000 * 10**9)
    assert rule.recommend(seen([load()], now_s=now_s)) == expected

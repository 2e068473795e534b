"""Fleets in simulated time, computed by hand: steps in load, starts, drains, seats, caches."""

from itertools import pairwise

import pytest

from sim.des.autoscale.rules import ScheduleRule, TargetRule, arrival_rate, mean_total
from sim.des.autoscale.scaler import Autoscale, Pace
from sim.des.routers.router import LeastLoaded, RoundRobin
from sim.metrics.latencies import Slo
from sim.metrics.summary import summarise
from sim.runlog.servers import FleetLog, ReplicaState
from sim.sglang.config import SchedulerConfig
from sim.workload.workload import listed
from tests.support.serve import linear_latency, serve
from tests.support.workloads import scripted

S = 10**9
FREELY = Pace(0, None, None, S)
# One request after the other; each takes a second for each token that it generates.
CONFIG = SchedulerConfig(
    max_running_requests=1, disable_radix_cache=True, disable_overlap_schedule=True
)
STARTING, UP, DRAINING, _ = ReplicaState


def autoscale(rule, *, most, initial=1, every_s=10, startup_s=20, gpus=1):
    return Autoscale(
        rule=rule,
        up=FREELY,
        down=FREELY,
        min_replicas=1,
        max_replicas=most,
        num_initial=initial,
        interval_ns=every_s * S,
        sample_ns=every_s * S // 2,
        startup_ns=startup_s * S,
        gpus=gpus,
    )


def timetable(*steps, **settings):
    """A fleet of this size from these seconds on."""
    return autoscale(ScheduleRule([(at_s * S, size) for at_s, size in steps], None), **settings)


def served(requests, scaling, *, config=CONFIG, router=None, **how):
    latency = {"per_prefill_token_s": 0, "per_decode_request_s": 0, "per_context_token_s": 0}
    latencies = [linear_latency(step_s=1.0, **latency) for _ in range(scaling.max_replicas)]
    return serve(
        listed(requests),
        config,
        latencies,
        router=router or LeastLoaded(),
        autoscale=scaling,
        **how,
    )


def events(run):
    """`(seconds, replica, state)` of all changes."""
    fleet = FleetLog.of(run.log.meta)
    return [(event.t_ns / S, event.replica, event.state.value) for event in fleet.events]


def arriving_at(*seconds, output=1):
    return [
        scripted(f"r{i}", (i, 3), output=output, arrival_ns=round(at_s * S))
        for i, at_s in enumerate(seconds)
    ]


def test_fleet_step_in_load_starts_the_replicas_that_the_rule_computes():
    """From 0.5 to 3 requests/s at 100 s, at most 0.9 for each replica: ceil(3 / 0.9) = 4.

    The rule sees the step at 110 s, and the new replicas take requests at 130 s. At 200 s requests
    end; the rule sees it at 210 s.
    """
    slow = [2 * i for i in range(50)]
    fast = [100 + i / 3 for i in range(300)]
    rule = TargetRule(arrival_rate, 0.9, 0.1)
    run = served(arriving_at(*slow, *fast, 240.5), autoscale(rule, most=9))
    assert events(run)[:8] == [
        (0, 0, "up"),
        *[(110, number, "starting") for number in (1, 2, 3)],
        *[(130, number, "up") for number in (1, 2, 3)],
        (210, 3, "draining"),
    ]
    requests = run.log.requests
    early = requests.arrival_ns <= 130 * S
    assert set(requests.replica[early]) == {0}
    assert set(requests.replica[~early]) == {0, 1, 2, 3}


def test_fleet_queue_of_a_burst_is_what_the_rule_sees_in_its_samples():
    """Ten requests at once: at 5 s one of them runs and four wait, at 10 s none is left."""
    rule = TargetRule(mean_total(lambda load: load.waiting), 1, 0.1)
    run = served(arriving_at(*[0] * 10, 30), autoscale(rule, most=9))
    # Mean of 4 and 0 is 2.
    assert events(run)[1] == (10, 1, "starting")
    assert sum(state == "starting" for _, _, state in events(run)) == 1


def test_fleet_drains_before_it_stops():
    """Three requests of 4 s each on replica 1 when it is stopped at 10 s: all end, at 21 s."""
    requests = [
        *arriving_at(*[9] * 6, output=4),
        scripted("late", (99, 3), output=1, arrival_ns=10 * S + 1),
    ]
    run = served(requests, timetable((0, 2), (10, 1), most=2, initial=2))
    assert events(run) == [(0, 0, "up"), (0, 1, "up"), (10, 1, "draining"), (21, 1, "stopped")]
    assert run.log.requests.replica.tolist() == [0, 1, 0, 1, 0, 1, 0]
    assert set(run.log.requests.status) == {"finished"}


def test_fleet_idle_replica_stops_at_once_and_a_start_can_be_taken_back():
    """The latest come first: replica 2, which is starting, before replica 1, which is idle."""
    scaling = timetable((0, 2), (10, 3), (20, 1), most=4, initial=2, startup_s=60)
    run = served(arriving_at(0, 50), scaling)
    assert events(run)[2:] == [
        (10, 2, "starting"),
        (20, 2, "stopped"),
        (20, 1, "draining"),
        (20, 1, "stopped"),
    ]


def test_fleet_new_replica_waits_for_a_seat():
    """Both seats are taken until replica 1 has drained at 29 s; the next sample is at 30 s."""
    scaling = timetable((0, 2), (10, 1), (20, 2), most=2, initial=2, startup_s=7)
    requests = [*arriving_at(9, 9, output=20), scripted("z", (9, 3), output=1, arrival_ns=60 * S)]
    run = served(requests, scaling)
    assert events(run)[2:] == [
        (10, 1, "draining"),
        (29, 1, "stopped"),
        (30, 1, "starting"),
        (37, 1, "up"),
    ]


def test_fleet_replica_that_comes_again_has_an_empty_cache_and_counts_its_steps_on():
    """The same prompt three times on replica 1: cached the second time, not after the restart."""
    config = SchedulerConfig(page_size=1, disable_overlap_schedule=True, max_total_tokens=1000)
    scaling = timetable((0, 2), (10, 1), (20, 2), most=2, initial=2, startup_s=5)
    # Round robin: every other request goes to replica 1 while that is up.
    requests = [
        scripted(f"r{i}", (1 + i % 2, 40), output=1, arrival_ns=at_s * S)
        for i, at_s in enumerate((1, 1, 3, 3, 31, 31))
    ]
    run = served(requests, scaling, config=config, router=RoundRobin())
    columns = run.log.requests
    assert columns.replica.tolist() == [0, 1, 0, 1, 0, 1]
    assert columns.cached_tokens.tolist() == [0, 0, 39, 39, 39, 0]
    numbers = [step["step"] for step in run.steps if step["replica"] == 1]
    assert numbers == list(range(len(numbers)))
    assert run.log.meta["simulated_steps"] == len(run.steps)


def test_fleet_costs_are_those_of_its_spans():
    """Two GPUs each: replica 0 from 0 to 40 s, replica 1 from its start at 10 s to 20 s."""
    scaling = timetable((0, 1), (10, 2), (20, 1), most=2, startup_s=5, gpus=2)
    requests = arriving_at(1, 1, 18, 18, 18, 39)
    run = served(requests, scaling)
    assert events(run)[1:] == [
        (10, 1, "starting"),
        (15, 1, "up"),
        (20, 1, "draining"),
        (20, 1, "stopped"),
    ]
    summary = summarise(run.log, Slo(ttft_ms=1_500, percentile=95))
    assert summary["replica_hours"] == pytest.approx((40 + 10) / 3600)
    assert summary["gpu_hours"] == pytest.approx(2 * (40 + 10) / 3600)
    assert summary["mean_replicas"] == pytest.approx(50 / 40)
    assert summary["replica_starts"] == 1
    # Requests r1 and r4 wait for a second: two of six are late in the only minute.
    assert summary["slo_attainment"] == pytest.approx(4 / 6)
    assert summary["time_below_slo_s"] == 60


def test_fleet_run_ends_with_its_last_request():
    """An autoscaler does not keep a simulation alive, nor does a start that nobody waits for."""
    run = served(arriving_at(0), timetable((0, 1), (10, 5), most=5, startup_s=1000))
    assert events(run) == [(0, 0, "up")]


def test_fleet_of_constant_size_is_the_fleet_without_autoscale():
    """The same decision log but for the lines of the fleet."""
    requests = arriving_at(*[i * 0.7 for i in range(40)], output=3)
    fixed = served(requests, timetable((0, 3), most=3, initial=3))
    latencies = [
        linear_latency(
            step_s=1.0, per_prefill_token_s=0, per_decode_request_s=0, per_context_token_s=0
        )
        for _ in range(3)
    ]
    plain = serve(listed(requests), CONFIG, latencies, router=LeastLoaded())
    lines = [line for line in fixed.text.splitlines() if '"fleet"' not in line]
    assert lines == plain.text.splitlines()
    assert len(fixed.text.splitlines()) == len(lines) + 3


def test_fleet_log_spans_join_the_states_that_are_asked_for():
    """A replica that starts and comes up holds its GPUs in one span; the run's end cuts it."""
    scaling = timetable((0, 1), (10, 2), (30, 1), most=2, startup_s=5)
    fleet = FleetLog.of(served(arriving_at(0, 50), scaling).log.meta)
    held = fleet.spans([STARTING, UP, DRAINING], 40 * S)
    assert [(span.replica, span.begin_ns // S, span.end_ns // S) for span in held] == [
        (1, 10, 30),
        (0, 0, 40),
    ]
    assert [span.replica for span in fleet.spans([STARTING], 40 * S)] == [1]
    assert all(before.t_ns <= after.t_ns for before, after in pairwise(fleet.events))

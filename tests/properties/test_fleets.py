"""Fleets of random sizes: nothing is lost, sizes are kept, and fast-forward changes nothing."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.units import NS_PER_MS, NS_PER_S
from sim.des.autoscale.rules import (
    DynamoRule,
    SaturationRule,
    ScheduleRule,
    SloRule,
    TargetRule,
    Thresholds,
    mean_total,
)
from sim.des.autoscale.scaler import Autoscale, Pace
from sim.des.routers.prefix_aware import PrefixAware
from sim.des.routers.router import LeastLoaded, RandomChoice, RoundRobin, SessionSticky
from sim.metrics.rates import log_end_ns
from sim.metrics.summary import summarise
from sim.runlog.servers import FleetLog, ReplicaState
from sim.workload.rng import RandomStreams
from tests.support.random_scenarios import random_scenarios
from tests.support.serve import serve

STARTING, UP, DRAINING, STOPPED = ReplicaState
ROUTERS = {
    "round-robin": RoundRobin,
    "random": lambda: RandomChoice(random=RandomStreams(1).stream("router")),
    "least-loaded": LeastLoaded,
    "prefix-aware": lambda: PrefixAware(
        cache_threshold=0.2,
        balance_abs_threshold=2,
        balance_rel_threshold=1.5,
        max_tree_tokens=200,
        block_tokens=4,
    ),
    "session-sticky": lambda: SessionSticky(
        by_tenant=False, max_idle_ns=50 * NS_PER_MS, spill=None
    ),
}
LIMITS = {"ttft": 20.0, "tpot": 6.0}
RULES = (
    TargetRule(mean_total(lambda load: load.waiting), 1, 0.1),
    TargetRule(mean_total(lambda load: load.waiting + load.running), 2, 0.1),
    TargetRule(mean_total(lambda load: load.kv_used), 0.3, 0.1),
    SloRule(LIMITS, 90, tolerance=0.1, shrink_below=0.9),
    DynamoRule(0.5, 0.2),
    SaturationRule(Thresholds(0.5, 2, 0.1, 1)),
)


@st.composite
def timetables(draw: st.DrawFn) -> ScheduleRule:
    """The size changes every few milliseconds."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=12))
    every_ns = draw(st.sampled_from((3_000_000, 10_000_000, 40_000_371)))
    return ScheduleRule([(i * every_ns, size) for i, size in enumerate(sizes)], None)


@st.composite
def autoscales(draw: st.DrawFn) -> Autoscale:
    most = draw(st.integers(1, 5))
    fewest = draw(st.integers(1, most))
    sample_ns = draw(st.sampled_from((1_000_000, 5_000_000, 7_300_000)))
    window_ns = draw(st.sampled_from((0, 30_000_000)))
    return Autoscale(
        rule=draw(st.one_of(timetables(), st.sampled_from(RULES))),
        up=Pace(0, draw(st.sampled_from((None, 1))), None, 10_000_000),
        down=Pace(window_ns, None, 100, 10_000_000),
        min_replicas=fewest,
        max_replicas=most,
        num_initial=draw(st.integers(fewest, most)),
        interval_ns=sample_ns * draw(st.sampled_from((1, 3))),
        sample_ns=sample_ns,
        startup_ns=draw(st.sampled_from((0, 1, 4_000_000, 60_000_000))),
        gpus=draw(st.integers(1, 8)),
    )


def run(scenario, autoscale, kind, **how):
    scenario = replace(scenario, replicas=autoscale.max_replicas)
    return serve(
        scenario.workload,
        scenario.config,
        scenario.latencies(),
        router=ROUTERS[kind](),
        host=scenario.host,
        num_front_ends=scenario.front_ends,
        autoscale=autoscale,
        **how,
    )


@pytest.mark.parametrize("kind", sorted(ROUTERS))
@given(scenario=random_scenarios(impatient=True), autoscale=autoscales())
def test_fleet_any_run_is_the_same_with_and_without_fast_forward(kind, scenario, autoscale):
    """INV-12: what a rule sees, and so what the fleet does, is the same to the byte."""
    fast, slow = (
        run(scenario, autoscale, kind, fast_forward=how, check=False) for how in (True, False)
    )
    assert fast.text == slow.text
    assert fast.log.meta == slow.log.meta
    assert fast.summary == slow.summary


@given(
    scenario=random_scenarios(impatient=True),
    autoscale=autoscales(),
    kind=st.sampled_from(sorted(ROUTERS)),
)
def test_fleet_any_run_keeps_its_sizes_and_loses_nothing(scenario, autoscale, kind):
    """INV-21: sizes, seats, what takes requests when, and the integral of what it costs."""
    served = run(scenario, autoscale, kind)
    fleet = FleetLog.of(served.log.meta)
    assert served.num_ended == scenario.workload.num_requests
    states: list[ReplicaState] = [STOPPED] * autoscale.max_replicas
    last_ns, up = 0, {}
    for event in fleet.events:
        assert event.t_ns >= last_ns
        before, states[event.replica] = states[event.replica], event.state
        assert _is_legal(before, event.state, event.t_ns)
        present = sum(state in {STARTING, UP} for state in states)
        if event.t_ns > 0 and _last_of_its_time(fleet, event):
            assert states.count(UP) >= 1
            # Fewer only while seats are taken by those that drain.
            assert present >= autoscale.min_replicas or _full(states)
        assert present <= autoscale.max_replicas
        last_ns = event.t_ns
        up.setdefault(event.replica, []).append((event.t_ns, event.state))
    requests = served.log.requests
    for arrival_ns, number in zip(requests.arrival_ns, requests.replica, strict=True):
        assert _state_before(up[number], arrival_ns) is UP
    held = Fraction(0)
    end_ns = log_end_ns(served.log)
    assert set(fleet.gpus) == {autoscale.gpus}
    for history in up.values():
        for (begin_ns, state), (until_ns, _) in pairwise([*history, (end_ns, STOPPED)]):
            if state is not STOPPED:
                held += max(min(until_ns, end_ns) - begin_ns, 0) * autoscale.gpus
    hours = summarise(served.log)["gpu_hours"]
    assert hours == pytest.approx(float(held / NS_PER_S / 3600), rel=1e-12, abs=1e-15)


def _is_legal(before: ReplicaState, after: ReplicaState, t_ns: int) -> bool:
    if before is STOPPED:
        return after is STARTING or (after is UP and t_ns == 0)
    return (before, after) in {
        (STARTING, UP),
        (STARTING, STOPPED),
        (UP, DRAINING),
        (DRAINING, STOPPED),
    }


def _last_of_its_time(fleet: FleetLog, event: object) -> bool:
    later = [other for other in fleet.events if other.t_ns == event.t_ns]
    return later[-1] is event


def _full(states: Sequence[ReplicaState]) -> bool:
    return DRAINING in states


def _state_before(history: list[tuple[int, ReplicaState]], arrival_ns: int) -> ReplicaState:
    """Changes come after the arrivals of the same time, but for those at time 0."""
    known = [state for t_ns, state in history if t_ns < arrival_ns or t_ns == 0]
    return known[-1]

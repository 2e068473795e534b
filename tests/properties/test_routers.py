"""INV-12 and INV-6 with many replicas: what a router sees does not depend on fast-forward."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.routing import Spill
from sim.des.routers.kv_aware import KvAware
from sim.des.routers.prefix_aware import PrefixAware
from sim.des.routers.router import LeastLoaded, PowerOfTwo, RoundRobin, SessionSticky
from sim.des.routers.scored import Scored
from sim.scenario.router_section import KvAwareConfig, ScoredConfig
from sim.sglang.config import SchedulerConfig
from sim.workload.workload import Turn, listed
from tests.support.random_scenarios import random_scenarios
from tests.support.serve import linear_latency, serve
from tests.support.workloads import scripted


def kv_aware(random=None, **settings):
    """A router of this section, which draws with `random`."""
    return KvAware(**KvAwareConfig(kind="kv-aware", **settings).parameters(), random=random)


def scored(**settings):
    section = ScoredConfig(kind="scored", **settings)
    return Scored(**section.parameters(), random=np.random.default_rng(6))


# With these seeds the first of two replicas is drawn first.
ROUTERS = {
    "round-robin": RoundRobin,
    "least-loaded": LeastLoaded,
    # With these values a few short requests use all three rules, and overflow the tree.
    "prefix-aware": lambda: PrefixAware(
        cache_threshold=0.2,
        balance_abs_threshold=2,
        balance_rel_threshold=1.5,
        max_tree_tokens=200,
        block_tokens=4,
    ),
    "power-of-two": lambda: PowerOfTwo(random=np.random.default_rng(6)),
    "kv-aware": kv_aware,
    "kv-aware, late": lambda: kv_aware(
        event_delay_s=0.009, temperature=0.5, random=np.random.default_rng(2)
    ),
    "kv-aware, by what was sent": lambda: kv_aware(kv_events=False, predicted_ttl_s=0.2),
    "scored": lambda: scored(prefix_weight=3),
    "scored, by loads": lambda: scored(prefix_weight=0, metrics_interval_s=0.01),
    "session-sticky, with spill": lambda: SessionSticky(
        by_tenant=False, max_idle_ns=None, spill=Spill(1.25, 1, True)
    ),
    "session-sticky": lambda: SessionSticky(by_tenant=False, max_idle_ns=50_000_000, spill=None),
}
kinds = pytest.mark.parametrize("kind", sorted(ROUTERS))


def in_session(request, number):
    """Every third request has no session."""
    request = request.sent_at(request.spec.arrival_ns)
    request.spec.session = f"s{number % 5}" if number % 3 else ""
    return request


def with_sessions(workload):
    requests = [in_session(request, i) for i, request in enumerate(workload.arrivals())]
    turns = [
        [Turn(turn.think_ns, in_session(turn.request, i)) for turn in client]
        for i, client in enumerate(workload.clients)
    ]
    return listed(requests, turns)


def outcome(scenario, workload, router, **how):
    """All that is logged, including the `replica` of every request."""
    served = serve(
        workload, scenario.config, scenario.latencies(), check=False, router=router, **how
    )
    requests, gaps = served.log.requests, served.log.token_gaps
    columns = {name: list(getattr(requests, name)) for name in requests.__dataclass_fields__}
    return served.text, columns, gaps.gap_ns.tolist(), gaps.count.tolist()


@kinds
@given(scenario=random_scenarios(), replicas=st.integers(2, 4))
def test_router_any_scenario_chooses_alike_with_and_without_fast_forward(kind, scenario, replicas):
    """Loads at an arrival are the same, whether the steps around it were taken one by one."""
    scenario = replace(scenario, replicas=replicas)
    workload = with_sessions(scenario.workload)
    one, other = (
        outcome(scenario, workload, ROUTERS[kind](), fast_forward=fast) for fast in (True, False)
    )
    assert one == other


@kinds
@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("late_ns", [-1, 0, 1])
def test_router_arrival_at_the_end_of_a_request_goes_first(kind, overlap, late_ns):
    """An instant later the request is over, with fast-forward and without."""
    latencies = [
        linear_latency(per_prefill_token_s=0, per_decode_request_s=0, per_context_token_s=0)
        for _ in range(2)
    ]
    config = SchedulerConfig(disable_overlap_schedule=not overlap)
    # On replica 0 for 20 steps of 5 ms; on replica 1 for many more.
    first = [scripted("a", (1, 20), output=20), scripted("b", (2, 20), output=200)]
    alone = serve(listed(first), config, latencies)
    end_ns = int(alone.request("a")["finish_ns"])
    last = scripted("c", (3, 20), output=3, arrival_ns=end_ns + late_ns)
    loads = []

    class Watched:
        """The router, and the loads that it saw last."""

        def __init__(self):
            self.router = ROUTERS[kind]()

        def choose(self, spec, replicas):
            loads.append([replica.num_unfinished for replica in replicas])
            return self.router.choose(spec, replicas)

    for fast_forward in (True, False):
        workload = listed([*first, last])
        serve(workload, config, latencies, fast_forward=fast_forward, router=Watched())
        assert loads[-1] == [0 if late_ns > 0 else 1, 1]


def runs_of(served, replica):
    """Length and start of each logged run of decode steps of a replica."""
    steps = served.log.steps
    mine = steps.replica == replica
    return steps.num_steps[mine].tolist(), steps.t_start_ns[mine].tolist()


@pytest.mark.parametrize("overlap", [True, False])
def test_replica_runs_are_cut_by_its_own_arrivals_alone(overlap):
    """A busy neighbour with many arrivals leaves no trace in how another's steps pass."""
    config = SchedulerConfig(disable_overlap_schedule=not overlap)
    mine = [scripted(f"m{i}", (i, 50), output=600, arrival_ns=i * 777_000_000) for i in range(3)]
    others = [
        scripted(f"o{i}", (50 + i, 50), output=40, arrival_ns=1 + i * 10_000_000)
        for i in range(200)
    ]

    class ByName:
        def choose(self, spec, replicas):
            return 0 if spec.rid.startswith("m") else 1

    merged = sorted([*mine, *others], key=lambda request: request.spec.arrival_ns)
    latencies = [linear_latency(), linear_latency()]
    alone = serve(listed(mine), config, latencies, router=ByName())
    together = serve(listed(merged), config, latencies, router=ByName())
    assert len(runs_of(together, 1)[0]) > 200
    assert runs_of(together, 0) == runs_of(alone, 0)
    assert len(runs_of(alone, 0)[0]) < 25

"""Orders kept from pass to pass are those that every pass would make from nothing."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sim.sglang.config import SchedulerConfig, UserRule, UserRules
from sim.sglang.policies.policy import DfsWeight, Fcfs, LongestPrefixMatch, ShortestPrefillFirst
from sim.sglang.scheduler.waiting.fairness import FairnessT, NoFairness
from sim.workload.workload import listed
from tests.support.random_scenarios import scheduler_configs
from tests.support.serve import serve
from tests.support.workloads import scripted

MS = 1_000_000


class SlowShortestPrefillFirst(ShortestPrefillFirst):
    """Sorts the whole queue by what this pass has matched."""

    def order(self, waiting, view):
        def key(request):
            work = max(1, request.num_tokens - request.matched_len)
            return id(request) in view.deferred, work, request.entry

        return sorted(waiting, key=key)


class SlowDfsWeight(DfsWeight):
    """Walks the whole tree, and looks at all requests for each of its nodes."""

    def order(self, waiting, view):
        paths = {id(request): self.path(request, view.root) for request in waiting}

        def below(node):
            weight = {
                child: sum(child in paths[id(request)] for request in waiting)
                for child in node.children.values()
            }
            children = sorted(filter(weight.get, weight), key=lambda n: (-weight[n], n.rank))
            own = [request for request in waiting if paths[id(request)][0] is node]
            return [request for child in children for request in below(child)] + own

        return below(view.root)

    @staticmethod
    def path(request, root):
        nodes = [request.kv.found or root]
        while nodes[-1].parent is not None:
            nodes.append(nodes[-1].parent)
        return nodes


class SlowFairness(NoFairness):
    """FAIRNESS_T by a look at every request."""

    def __init__(self, t_ns):
        self.t_ns = t_ns

    def reorder(self, ordered, now_ns, deferred):
        aged = [request for request in ordered if self.ages_ns(request) <= now_ns]
        for request in aged:
            request.is_aged = True
            request.may_overdraw = self.t_ns > 0 and not request.retractions
        others = [request for request in ordered if self.ages_ns(request) > now_ns]
        return sorted(aged, key=lambda request: request.spec.arrival_ns) + others

    def ages_ns(self, request):
        return request.spec.arrival_ns + self.t_ns


POLICIES = {
    "fcfs": Fcfs,
    "lpm": LongestPrefixMatch,
    "shortest-prefill-first": SlowShortestPrefillFirst,
    "dfs-weight": SlowDfsWeight,
}


def slow(config):
    """The same settings with rules of a user's, who may look at anything: nothing is kept."""
    policy = POLICIES[config.schedule_policy]
    rules = UserRules(schedule_policy=UserRule("slow", policy))
    if config.fairness is not None:
        t_ns = config.fairness.t_ns
        rules = rules._replace(fairness=UserRule("slow", lambda _: SlowFairness(t_ns)))
    return replace(config, user=rules)


def traffic(seed, num_requests):
    """Bursts of requests whose prompts share beginnings, some of them with answers."""
    rng = np.random.default_rng(seed)
    arrival_ns, requests = 0, []
    gaps_ns = rng.choice((0, 0, 0, MS, 4 * MS, 40 * MS), num_requests)
    for i in range(num_requests):
        arrival_ns += int(gaps_ns[i])
        group, output = int(rng.integers(0, 4)), int(rng.integers(1, 20))
        # Three nested prefixes, each cut anywhere; then the request's own tokens.
        segments = [(1 + group // 2, int(rng.integers(1, 40)))]
        if rng.random() < 0.6:
            segments = [(1 + group // 2, 40), (11 + group, int(rng.integers(1, 40)))]
        if rng.random() < 0.8:
            segments.append((100 + int(rng.integers(0, num_requests)), int(rng.integers(1, 40))))
        requests.append(
            scripted(
                f"r{i}",
                *segments,
                output=output,
                limit=output * int(rng.integers(1, 3)),
                arrival_ns=arrival_ns,
                output_seed=1 << 20 | int(rng.integers(0, 3)),
            )
        )
    return listed(requests)


def decisions(workload, config):
    served = serve(workload, config, check=False)
    return [{**step, "config": None} for step in served.steps], served.log.requests.aged.tolist()


# Requests of one group move to a new one together, and keep their order there.
TIGHT = SchedulerConfig(
    max_total_tokens=225, max_prefill_tokens=32, max_running_requests=5, decode_first=True,
    chunked_prefill_size=-1, context_length=10_000, clip_max_new_tokens=4, page_size=1,
    schedule_conservativeness=0.05,
)  # fmt: skip


@pytest.mark.long
@settings(deadline=None)
@example(TIGHT, "dfs-weight", None, 0, 60)
@example(
    replace(TIGHT, page_size=64, max_total_tokens=256, max_running_requests=1),
    "shortest-prefill-first", 0, 0, 220,
)  # fmt: skip
@example(
    replace(TIGHT, version="0.5.10", page_size=64, max_total_tokens=256),
    "shortest-prefill-first", 0, 0, 220,
)  # fmt: skip
@given(
    scheduler_configs(),
    st.sampled_from(sorted(POLICIES)),
    st.sampled_from((None, None, 0, 10 * MS, 100 * MS)),
    st.integers(0, 10_000),
    st.sampled_from((12, 60, 220)),
)
def test_long_queues_are_ordered_as_from_nothing(config, policy, t_ns, seed, num_requests):
    """Matches, splits, evictions, deferrals, retractions, ageing; any page size and eviction."""
    config = replace(
        config,
        schedule_policy=policy,
        fairness=None if t_ns is None else FairnessT(t_ns),
        enable_priority_scheduling=False,
        disable_radix_cache=False,
        admission=None,
        host_cache=None,
    )
    workload = traffic(seed, num_requests)
    assert decisions(workload, config) == decisions(workload, slow(config))

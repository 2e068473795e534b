"""The order of each policy on queues written out by hand (rules 8 and 9)."""

import pytest

from sim.core.tokens import SegmentPrompt
from sim.engine.page_pool import PageCounts
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.config import SchedulerConfig
from sim.sglang.policies.policy import (
    POLICIES,
    PRIORITY_POLICIES,
    Fcfs,
    Priority,
    QueueView,
    build_policy,
)
from sim.testing.contracts.policies import matched, waiting_request


@pytest.fixture
def pool():
    return PageCounts(1000, 1)


@pytest.fixture
def cache(pool):
    return RadixCache(pool)


def put(cache, pool, *segments):
    ids = SegmentPrompt(segments).token_ids()
    pool.reserve(len(ids))
    cache.insert(ids, 0, pool.take_reserved(len(ids)))


def order(name, queue, cache, *, table=POLICIES, deferred=(), processed_tokens=0, **config):
    view = QueueView(0, cache.root, frozenset(map(id, deferred)), processed_tokens)
    return "".join(r.rid for r in table[name](SchedulerConfig(**config)).order(queue, view))


def test_fcfs_keeps_the_queue(cache):
    """First come, first served."""
    queue = [waiting_request(rid, (1, 5)) for rid in "cab"]
    assert order("fcfs", queue, cache) == "cab"


def test_lof_largest_limit_first(cache):
    """By what may be generated, ties in turn."""
    limits = {"a": 5, "b": 9, "c": 5, "d": 10}
    queue = [waiting_request(rid, (1, 5), limit=limit) for rid, limit in limits.items()]
    assert order("lof", queue, cache) == "dbac"


def test_sjf_shortest_prediction_first_else_the_limit(cache):
    """A request without a prediction counts what it may generate."""
    queue = [
        waiting_request("a", (1, 5), limit=50, predicted=7),
        waiting_request("b", (1, 5), limit=6),
        waiting_request("c", (1, 5), limit=100, predicted=2),
        waiting_request("d", (1, 5), limit=7),
    ]
    assert order("sjf", queue, cache) == "cbad"


def test_lpm_longest_prefix_first_deferred_last(cache, pool):
    """By matched tokens; a deferred one goes behind those that match nothing."""
    put(cache, pool, (1, 50))
    queue = [
        matched(waiting_request("a", (1, 10), (7, 50)), cache),
        matched(waiting_request("b", (2, 50)), cache),
        matched(waiting_request("c", (1, 40), (7, 50)), cache),
        matched(waiting_request("d", (3, 50)), cache),
        matched(waiting_request("e", (1, 10), (8, 50)), cache),
    ]
    assert order("lpm", queue, cache, deferred=[queue[1]]) == "caedb"


def test_shortest_prefill_first_by_uncached_tokens(cache, pool):
    """What is left to compute counts, then the turn; deferred last."""
    put(cache, pool, (1, 50))
    queue = [
        matched(waiting_request("a", (1, 50), (7, 30), entry=1), cache),
        matched(waiting_request("b", (2, 20), entry=2), cache),
        matched(waiting_request("c", (1, 50), (8, 20), entry=3), cache),
        matched(waiting_request("d", (1, 50), (9, 5), entry=4), cache),
    ]
    assert order("shortest-prefill-first", queue, cache) == "dbca"
    assert order("shortest-prefill-first", queue, cache, deferred=[queue[3]]) == "bcad"


def test_hrrn_highest_ratio_of_waiting_to_work_first(cache, pool):
    """Tokens the server computed since arrival, over tokens to compute; ties by name."""
    put(cache, pool, (1, 90))
    queue = [
        matched(waiting_request("d", (2, 100)), cache),  # 1000 / 100
        matched(waiting_request("a", (3, 100)), cache),  # 500 / 100
        matched(waiting_request("b", (1, 90), (4, 10)), cache),  # 100 / 10
        matched(waiting_request("c", (5, 10)), cache),  # deferred
    ]
    for request, since in zip(queue, (1000, 500, 100, 1000), strict=True):
        request.entry_tokens = 2000 - since
    deferred = [queue[3]]
    assert order("hrrn", queue, cache, deferred=deferred, processed_tokens=2000) == "bdac"


def test_dfs_weight_heaviest_subtree_first_children_before_their_parent(cache, pool):
    """Post-order: below x two wait, below y one, at the root one."""
    put(cache, pool, (1, 10), (2, 10))
    put(cache, pool, (3, 10))
    queue = [
        matched(waiting_request("r", (9, 10)), cache),
        matched(waiting_request("y", (3, 10), (7, 5)), cache),
        matched(waiting_request("x", (1, 10), (7, 5)), cache),
        matched(waiting_request("z", (1, 10), (2, 10), (7, 5)), cache),
    ]
    assert order("dfs-weight", queue, cache) == "zxyr"


def test_dfs_weight_equal_weights_by_insertion_own_requests_in_turn(cache, pool):
    """The subtree inserted first goes first, whichever request came first."""
    put(cache, pool, (3, 10))
    put(cache, pool, (1, 10))
    queue = [
        matched(waiting_request(rid, (seed, 10), (7, 5)), cache)
        for rid, seed in (("a", 1), ("b", 3), ("c", 1), ("d", 3))
    ]
    assert order("dfs-weight", queue, cache) == "bdac"


def test_dfs_weight_counts_requests_not_tokens(cache, pool):
    """Three shallow requests outweigh two deep ones."""
    put(cache, pool, (1, 100))
    put(cache, pool, (3, 5))
    seeds = (("a", 1, 100), ("b", 3, 5), ("c", 1, 100), ("d", 3, 5), ("e", 3, 5))
    queue = [matched(waiting_request(rid, (seed, n), (7, 5)), cache) for rid, seed, n in seeds]
    assert order("dfs-weight", queue, cache) == "bdeac"


@pytest.mark.parametrize(("low_first", "expected"), [(False, "bdac"), (True, "cabd")])
def test_priority_then_entry_either_direction(cache, low_first, expected):
    """Equal priorities go by entry into the queue, whatever the queue's present order."""
    queue = [
        waiting_request("a", (1, 5), priority=1, entry=4),
        waiting_request("b", (1, 5), priority=2, entry=2),
        waiting_request("c", (1, 5), priority=0, entry=1),
        waiting_request("d", (1, 5), priority=2, entry=3),
    ]
    config = {"schedule_low_priority_values_first": low_first}
    assert order("fcfs", queue, cache, table=PRIORITY_POLICIES, **config) == expected
    assert order("priority", queue[::-1], cache, **config) == expected


@pytest.mark.parametrize(("low_first", "expected"), [(False, "bdac"), (True, "cabd")])
def test_priority_with_lof_then_largest_limit(cache, low_first, expected):
    """Within a priority the largest limit goes first, ties in turn."""
    rows = (("a", 1, 5), ("d", 2, 3), ("c", 0, 1), ("b", 2, 9))
    queue = [waiting_request(rid, (1, 5), priority=p, limit=n) for rid, p, n in rows]
    config = {"schedule_low_priority_values_first": low_first}
    assert order("lof", queue, cache, table=PRIORITY_POLICIES, **config) == expected


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_build_policy_without_a_cache_is_fcfs_where_it_would_match(name):
    """Rule 8: cache-aware policies have nothing to look at."""
    built = build_policy(SchedulerConfig(schedule_policy=name, disable_radix_cache=True))
    if POLICIES[name](SchedulerConfig()).matches_prefixes:
        assert type(built) is Fcfs
    else:
        assert type(built) is POLICIES[name]


def test_build_policy_with_priorities_orders_fcfs_by_priority():
    """Rule 9."""
    config = SchedulerConfig(schedule_policy="fcfs", enable_priority_scheduling=True)
    assert type(build_policy(config)) is Priority

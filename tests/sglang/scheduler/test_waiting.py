"""The waiting queue between passes: in-batch prefixes, the 128 limit, warm prefixes."""

import pytest

from sim.core.tokens import SegmentPrompt
from sim.engine.page_pool import PageCounts
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.config import SchedulerConfig
from sim.sglang.policies.policy import POLICIES
from sim.sglang.scheduler.waiting.queue import WaitingQueue
from sim.testing.contracts.policies import waiting_request


@pytest.fixture
def kv():
    pool = PageCounts(10_000, 1)
    return KVCacheManager(pool, RadixCache(pool))


def put(kv, *segments):
    ids = SegmentPrompt(segments).token_ids()
    kv.pool.reserve(len(ids))
    kv.cache.insert(ids, 0, kv.pool.take_reserved(len(ids)))


def found(kv, *segments):
    ids = SegmentPrompt(segments).token_ids()
    return kv.cache.match(ids, len(ids)).num_tokens


def queue_of(kv, policy, *requests, **config):
    config = SchedulerConfig(schedule_policy=policy, **config)
    queue = WaitingQueue(config, kv, POLICIES[policy](config))
    for request in requests:
        queue.enter(request)
    return queue


def ordered(queue):
    queue.order(0)
    return [request.rid for request in queue.requests]


@pytest.mark.parametrize(("num_shared", "expected"), [(31, "abc"), (32, "acb"), (60, "acb")])
def test_lpm_request_that_shares_32_new_tokens_waits_for_the_first(kv, num_shared, expected):
    """The first will put them into the cache; 31 tokens are not worth it."""
    queue = queue_of(
        kv,
        "lpm",
        waiting_request("a", (1, num_shared), (2, 50)),
        waiting_request("b", (1, num_shared), (3, 50)),
        waiting_request("c", (4, 50)),
    )
    assert "".join(ordered(queue)) == expected


@pytest.mark.parametrize(("num_cached", "expected"), [(32, "acb"), (33, "abc")])
def test_lpm_request_with_more_than_32_cached_is_not_deferred(kv, num_cached, expected):
    """Its prefix is there already; up to 32 cached tokens it is compared with earlier ones."""
    put(kv, (1, num_cached))
    put(kv, (4, 20))
    queue = queue_of(
        kv,
        "lpm",
        waiting_request("a", (1, num_cached), (2, 50)),
        waiting_request("b", (1, num_cached), (3, 50)),
        waiting_request("c", (4, 20), (5, 50)),
    )
    assert "".join(ordered(queue)) == expected


def test_lpm_deferral_starts_anew_each_pass(kv):
    """Once the first has gone the next of its kind is no longer deferred."""
    first, second = (waiting_request(rid, (1, 40), (seed, 9)) for rid, seed in (("a", 2), ("b", 3)))
    other = waiting_request("c", (4, 50))
    queue = queue_of(kv, "lpm", first, second, other)
    assert ordered(queue) == ["a", "c", "b"]
    queue.leave([first])
    assert ordered(queue) == ["c", "b"]
    assert [request.matched_len for request in queue.requests] == [0, 0]


@pytest.mark.parametrize(("num_waiting", "is_sorted"), [(128, True), (129, False)])
def test_lpm_queue_above_128_keeps_its_order(kv, num_waiting, is_sorted):
    """A long queue is neither matched nor sorted."""
    put(kv, (1, 50))
    requests = [waiting_request(f"r{i}", (100 + i, 40)) for i in range(num_waiting - 1)]
    queue = queue_of(kv, "lpm", *requests, waiting_request("hit", (1, 50), (2, 5)))
    assert ordered(queue).index("hit") == (0 if is_sorted else num_waiting - 1)


def test_dfs_weight_long_queue_is_ordered_all_the_same(kv):
    """Only lpm and its kin give up at 128."""
    put(kv, (1, 50))
    requests = [waiting_request(f"r{i}", (100 + i, 40)) for i in range(200)]
    queue = queue_of(kv, "dfs-weight", *requests, waiting_request("hit", (1, 50), (2, 5)))
    assert ordered(queue)[0] == "hit"


def test_fcfs_every_32nd_pass_keeps_waiting_prefixes_warm(kv):
    """The first pass touches, the 31 after it do not, the next one does (rule 12)."""
    put(kv, (1, 10))
    queue = queue_of(kv, "fcfs", waiting_request("a", (1, 10), (2, 5)))
    put(kv, (3, 10))
    queue.order(0)
    put(kv, (4, 10))
    kv.cache.evict(1)
    assert (found(kv, (1, 10)), found(kv, (3, 10))) == (10, 0)
    for _ in range(31):
        queue.order(0)
    put(kv, (5, 10))
    queue.order(0)
    kv.cache.evict(11)
    assert [found(kv, (seed, 10)) for seed in (1, 4, 5)] == [10, 0, 0]


def test_fcfs_refresh_keeps_the_head_of_the_queue_longest(kv):
    """It is touched last."""
    queue = queue_of(kv, "fcfs", *[waiting_request(f"r{i}", (i, 10), (9, 5)) for i in (1, 2)])
    put(kv, (1, 10))
    put(kv, (2, 10))
    queue.order(0)
    kv.cache.evict(1)
    assert (found(kv, (1, 10)), found(kv, (2, 10))) == (10, 0)


def test_fcfs_refresh_reaches_the_first_128(kv):
    """The next one's prefix gets cold."""
    queue = queue_of(
        kv, "fcfs", *[waiting_request(f"r{i}", (i, 10), (0, 5)) for i in range(1, 130)]
    )
    put(kv, (128, 10))
    put(kv, (129, 10))
    queue.order(0)
    kv.cache.evict(1)
    assert (found(kv, (128, 10)), found(kv, (129, 10))) == (10, 0)


def test_fcfs_pass_without_waiting_requests_does_not_count(kv):
    """Empty passes leave the count of passes alone."""
    queue = queue_of(kv, "fcfs")
    for _ in range(5):
        queue.order(0)
    put(kv, (1, 10))
    put(kv, (3, 10))
    queue.enter(waiting_request("a", (1, 10), (2, 5)))
    queue.order(0)
    kv.cache.evict(1)
    assert found(kv, (1, 10)) == 10


def test_leave_takes_out_any_requests_and_keeps_the_rest_in_turn(kv):
    """From the head or from anywhere."""
    requests = [waiting_request(rid, (1, 5)) for rid in "abcde"]
    queue = queue_of(kv, "fcfs", *requests)
    queue.leave(requests[:1])
    queue.leave([requests[3], requests[2]])
    assert ordered(queue) == ["b", "e"]


def test_enter_again_is_a_new_turn(kv):
    """A retracted request's entry is later than that of all who wait."""
    requests = [waiting_request(rid, (1, 5)) for rid in "ab"]
    queue = queue_of(kv, "fcfs", *requests)
    queue.leave(requests[:1])
    queue.processed_tokens = 70
    queue.enter(requests[0])
    assert ordered(queue) == ["b", "a"]
    assert requests[0].entry > requests[1].entry
    assert requests[0].entry_tokens == 70


@pytest.mark.parametrize(
    ("policy", "lengths", "limit"),
    [
        ("fcfs", (10,), None),
        ("shortest-prefill-first", (10,), 54),
        ("shortest-prefill-first", (10, 20), 34),
        ("shortest-prefill-first", (100,), None),
        ("shortest-prefill-first", (), None),
        ("shortest-prefill-first", (40, 50), 24),
    ],
)
def test_chunk_limit_keeps_room_for_shorter_requests(kv, policy, lengths, limit):
    """The chunked request leaves to those with less work what they need of the 64."""
    waiting = [waiting_request(f"r{i}", (10 + i, n)) for i, n in enumerate(lengths)]
    queue = queue_of(kv, policy, *waiting)
    chunked = waiting_request("c", (1, 100))
    assert queue.chunk_limit(chunked, 64) == limit

"""The index of cached blocks: events take effect when they arrive."""

from hypothesis import given
from hypothesis import strategies as st

from sim.core.routing import TierCredits
from sim.des.routers.kv_index import Hits, KvIndex, SentBlocks, num_leading

ON_DEVICE = TierCredits(1, 0, 0)

keys = st.integers(0, 300)


def feed(index, replica, now_ns=lambda: 0):
    """What listens to a new cache's device."""
    return index.feed(index.add_cache(replica).device, now_ns)


def num_cached(index, prompt, replica):
    return index.hits(prompt, replica, 0, ON_DEVICE).device


@given(st.lists(keys, max_size=200, unique=True), st.sets(keys), st.integers(0, 200))
def test_num_leading_counts_up_to_the_first_key_that_is_missing(prompt, held, num_held):
    """In a set and in a dictionary, however long the prompt."""
    held |= set(prompt[:num_held])
    expected = 0
    while expected < len(prompt) and prompt[expected] in held:
        expected += 1
    assert num_leading(prompt, held) == expected
    assert num_leading(prompt, dict.fromkeys(held, 1).keys()) == expected


def test_index_events_count_once_they_have_arrived():
    """Stored at 5 and removed at 6, each known 10 later; another replica's blocks are its own."""
    index, now = KvIndex(10), [5]
    one, other = (feed(index, replica, lambda: now[0]) for replica in (0, 1))
    one.stored([1, 2, 3])
    now[0] = 6
    one.removed([3])
    other.stored([1])
    for at, cached in ((14, (0, 0)), (15, (3, 0)), (16, (2, 1)), (99, (2, 1))):
        index.advance(at)
        assert tuple(num_cached(index, [1, 2, 3, 4], replica) for replica in (0, 1)) == cached
    assert [cache.device for cache in index.known(0)] == [{1, 2}]


def test_index_replica_with_ranks_counts_as_its_best_rank():
    """Blocks on different ranks do not add up: a request runs on one of them."""
    index = KvIndex(0)
    first, second = (feed(index, 0) for _ in range(2))
    first.stored([1, 2])
    second.stored([3])
    index.advance(0)
    assert num_cached(index, [1, 2, 3], 0) == 2
    assert num_cached(index, [1, 2, 3], 7) == 0


def test_index_a_block_that_is_missing_ends_the_prefix():
    """The pool of family vllm may lose a block before the one that follows it."""
    index = KvIndex(0)
    feed(index, 0).stored([1, 3])
    index.advance(0)
    assert num_cached(index, [1, 2, 3], 0) == 1


def test_index_tiers_follow_one_another():
    """Host memory counts from where the device ends, the store from where host memory ends."""
    index = KvIndex(0)
    cache = index.add_cache(0)
    cache.device |= {1, 2, 6}
    cache.host |= {1, 2, 3, 4}
    cache.storage |= {3, 4, 5, 6, 8}
    prompt = [1, 2, 3, 4, 5, 6, 7, 8]
    for credit, hits in (
        (TierCredits(1, 0.75, 0.25), Hits(2, 2, 2)),
        (TierCredits(1, 0, 0.25), Hits(2, 0, 4)),
        (TierCredits(1, 0.75, 0), Hits(2, 2, 0)),
        (TierCredits(0, 0, 0), Hits(2, 0, 0)),
    ):
        assert index.hits(prompt, 0, 0, credit) == hits
    assert Hits(2, 2, 2).worth(TierCredits(1, 0.75, 0.25)) == 4


@given(
    st.lists(st.sets(keys, max_size=40), min_size=4, max_size=4),
    st.lists(keys, max_size=60, unique=True),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_index_a_tier_without_credit_is_as_good_as_empty(tiers, prompt, host, storage):
    """Its events may say what they will."""
    sent = SentBlocks(None)
    sent.sent(sorted(tiers[3]), 0, 0)
    full, bare = KvIndex(0, sent), KvIndex(0, sent)
    for index, (device, on_host, stored) in ((full, tiers[:3]), (bare, (tiers[0], (), ()))):
        cache = index.add_cache(0)
        cache.device.update(device)
        cache.host.update(on_host)
        cache.storage.update(stored)
    nothing = TierCredits(1, 0, 0)
    assert full.hits(prompt, 0, 0, nothing) == bare.hits(
        prompt, 0, 0, TierCredits(1, host, storage)
    )


class Remembered:
    """What is thought to be cached, in the simplest way: all prompts, looked through each time."""

    def __init__(self, ttl_ns, most_blocks):
        self.ttl_ns, self.most_blocks, self.sent_at = ttl_ns, most_blocks, []

    def sent(self, prompt, now_ns):
        self.sent_at.append((now_ns, prompt))

    def held(self, now_ns):
        """The latest distinct blocks, of one prompt the first ones."""
        kept = []
        for sent_ns, prompt in reversed(self.sent_at):
            fresh = self.ttl_ns is None or now_ns - sent_ns < self.ttl_ns
            kept += [key for key in prompt if fresh and key not in kept]
        return set(kept[: self.most_blocks])


@given(
    st.lists(st.tuples(st.integers(0, 9), st.lists(keys, max_size=9, unique=True)), max_size=30),
    st.sampled_from((None, 1, 7, 30, 10**6)),
    st.integers(1, 25),
)
def test_sent_blocks_are_the_latest_of_all_prompts(prompts, ttl_ns, most_blocks):
    """Least recently sent, least recently remembered; with an endless time to live nothing else."""
    sent, model, now_ns = SentBlocks(ttl_ns), Remembered(ttl_ns, most_blocks), 0
    sent.limit(0, most_blocks)
    for pause_ns, prompt in prompts:
        now_ns += pause_ns
        assert sent.held(0, now_ns) == model.held(now_ns)
        sent.sent(prompt, 0, now_ns)
        model.sent(prompt, now_ns)
    assert sent.held(0, now_ns) == model.held(now_ns)
    assert sent.held(1, now_ns) == set()

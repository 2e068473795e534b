"""Host memory by hand: what is copied when, what is loaded back, and what is evicted for it."""

import numpy as np
import pytest

from sim.engine.page_pool import PageIds
from sim.sglang.cache.host.part import HostPart
from sim.sglang.cache.host.tree import HostTree
from sim.sglang.cache.settings import HostCacheSettings
from sim.sglang.cache.tree.eviction import EVICTION_POLICIES
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.check import check_host_memory


def path(*parts):
    """Tokens of `(symbol, count)` parts."""
    return np.concatenate([np.full(count, symbol, dtype=np.int64) for symbol, count in parts])


class Desk:
    """A cache whose pages hold one token each."""

    def __init__(self, host_tokens, *, uses=1, threshold=0, device_tokens=100, eviction="lru"):
        self.pool = PageIds(device_tokens, 1)
        self.cache = RadixCache(self.pool, EVICTION_POLICIES[eviction](device_tokens))
        settings = HostCacheSettings(host_tokens, uses, threshold)
        self.host = HostTree(self.cache, settings, PageIds(host_tokens, 1))

    def check(self):
        check_host_memory(self.cache.root, self.host)

    def insert(self, tokens):
        self.pool.reserve(len(tokens))
        node, _ = self.cache.insert(tokens, 0, self.pool.take_reserved(len(tokens)))
        self.cache.count_use(node, 0)
        self.check()
        return node

    def evict_all(self):
        self.cache.evict(10_000)
        self.check()

    def found(self, tokens):
        """Tokens on the device, and beyond them in host memory."""
        match = self.cache.match(tokens, len(tokens))
        return match.num_tokens, match.num_host_tokens

    def load(self, tokens):
        match = self.cache.match(tokens, len(tokens))
        self.cache.touch(match)
        loads = HostPart(self.host)
        starts = self.host.lock_copies(match.end)
        loaded = loads.load(match.end)
        self.host.unlock_copies(match.end, starts)
        self.check()
        return loaded is not None

    @property
    def used(self):
        return self.host.memory.used_tokens


A, B = path((1, 10)), path((2, 10))


def test_write_through_copies_at_once_and_eviction_leaves_the_copy():
    """Device pages come free; the match says where the rest is."""
    desk = Desk(100)
    desk.insert(A)
    assert (desk.used, desk.found(A)) == (10, (10, 0))
    desk.evict_all()
    assert (desk.used, desk.found(A)) == (10, (0, 10))
    assert desk.pool.num_free_pages == 100


def test_selective_copies_at_the_second_use():
    """Once inserted is not enough; what has no copy is gone when evicted."""
    desk = Desk(100, uses=2)
    desk.insert(A)
    desk.insert(B)
    desk.insert(A)
    assert desk.used == 10
    desk.evict_all()
    assert (desk.found(A), desk.found(B)) == ((0, 10), (0, 0))


def test_write_back_copies_when_evicted():
    """Host memory is empty until then."""
    desk = Desk(100, uses=None)
    desk.insert(A)
    assert desk.used == 0
    desk.evict_all()
    assert (desk.used, desk.found(A)) == (10, (0, 10))


def test_part_of_a_host_node_is_found_and_cut():
    """A prompt that goes another way half-way down gets what is common."""
    desk = Desk(100)
    desk.insert(A)
    desk.evict_all()
    other = path((1, 4), (3, 4))
    assert desk.found(other) == (0, 4)
    assert desk.load(other)
    assert (desk.found(other), desk.found(A)) == ((4, 0), (4, 6))


def test_inserting_what_is_on_the_host_puts_it_on_the_device():
    """Computed again after all: the nodes take the new pages, their copies stay."""
    desk = Desk(100)
    desk.insert(A)
    desk.evict_all()
    desk.insert(path((1, 6), (2, 5)))
    assert desk.found(A) == (6, 4)
    assert desk.found(path((1, 6), (2, 5))) == (11, 0)
    assert desk.used == 15


def test_full_host_memory_forgets_the_least_recently_used():
    """Ends of paths first; a copy of what is on the device is not given up (write-through)."""
    desk = Desk(25)
    desk.insert(A)
    desk.insert(B)
    desk.evict_all()
    desk.insert(path((3, 15)))
    assert (desk.found(A), desk.found(B)) == ((0, 0), (0, 10))
    # For a copy that has no room nevertheless, others are forgotten all the same.
    desk.insert(path((4, 20)))
    assert desk.found(B) == (0, 0)
    assert desk.used == 15


def test_write_back_gives_up_spare_copies_first():
    """A loaded node has both; its copy goes before the only copy of another."""
    desk = Desk(20, uses=None)
    desk.insert(A)
    desk.insert(B)
    desk.evict_all()
    assert desk.load(B)
    desk.insert(path((2, 10), (3, 5)))
    desk.insert(path((4, 8)))
    # B has a child on the device, so B is not evicted next, and its copy is removed.
    desk.cache.evict(1)
    desk.check()
    assert (desk.found(A), desk.found(path((2, 10), (3, 5)))) == ((0, 10), (10, 5))
    assert desk.used == 15


def test_node_larger_than_host_memory_takes_what_is_below_with_it():
    """Without it, nobody could get there."""
    desk = Desk(5, uses=None)
    desk.insert(A)
    desk.insert(path((1, 10), (2, 3)))
    desk.cache.evict(1)
    assert (desk.used, desk.found(path((1, 10), (2, 3)))) == (3, (10, 3))
    desk.cache.evict(1)
    desk.check()
    assert (desk.used, desk.found(A)) == (0, (0, 0))


@pytest.mark.parametrize("eviction", sorted(EVICTION_POLICIES))
def test_load_spares_its_own_path_from_the_pressure_it_makes(eviction):
    """Room on the device is made by writing others back; host memory is full, A lies lowest."""
    desk = Desk(20, uses=None, device_tokens=15, eviction=eviction)
    desk.insert(A)
    desk.evict_all()
    for _ in range(3):
        desk.insert(B)
        desk.evict_all()
    third = path((3, 10))
    desk.insert(third)
    assert desk.load(A)
    assert [desk.found(tokens) for tokens in (A, B, third)] == [(10, 0), (0, 0), (0, 10)]


def test_load_below_the_threshold_or_without_room_is_refused():
    """The part on the device is locked; nothing is half-loaded."""
    desk = Desk(100, threshold=11, device_tokens=15)
    desk.insert(A)
    desk.evict_all()
    assert not desk.load(A)
    assert desk.found(A) == (0, 10)
    longer = path((1, 10), (2, 5))
    desk.insert(longer)
    desk.evict_all()
    held = desk.insert(path((4, 3)))
    desk.cache.lock(held)
    assert not desk.load(longer)
    desk.cache.unlock(held)
    assert desk.load(longer)
    assert desk.found(longer) == (15, 0)

"""Which chunks leave CPU memory first."""

import pytest

from sim.vllm.offload.host_memory import HostMemory
from sim.vllm.offload.policies import Access, ChunkKey
from sim.vllm.offload.settings import OffloadSettings
from sim.vllm.version_rules import VERSIONS


def keys(name, num_chunks):
    """The chunks of a prompt."""
    return [ChunkKey(place, 0, 100 * name + place) for place in range(num_chunks)]


def memory(num_chunks, **settings):
    return HostMemory(OffloadSettings(num_chunks=num_chunks, **settings))


def stored(host, offered, access=None):
    """A request offers chunks, which are copied at once; returns its access."""
    access = access or Access()
    new = host.store(offered, access)
    if new:
        host.stored(new, access)
    return access


def there(host, chunks):
    return [host.find(key) is not None for key in chunks]


def test_lru_drops_the_end_of_the_prefix_that_was_used_least_recently():
    host = memory(5)
    a, b = keys(1, 3), keys(2, 2)
    host.request_ended(stored(host, a))
    host.request_ended(stored(host, b))
    stored(host, keys(3, 2))
    assert there(host, a) == [True, False, False]
    assert there(host, b) == [True, True]


def test_lru_counts_a_load_as_a_use():
    host = memory(4)
    a, b = keys(1, 2), keys(2, 2)
    host.request_ended(stored(host, a))
    host.request_ended(stored(host, b))
    reader = Access()
    host.load(a, reader)
    host.loaded(a)
    stored(host, keys(3, 2))
    assert there(host, a) == [True, True]
    assert there(host, b) == [False, False]


@pytest.mark.parametrize("policy", ["lru", "arc"])
def test_chunk_that_is_read_or_written_stays(policy):
    """Nothing is dropped if there is not enough room then."""
    host = memory(3, eviction_policy=policy)
    a, b = keys(1, 2), keys(2, 1)
    stored(host, a)
    host.load(a[:1], Access())
    written = host.store(b, Access())
    assert written == b
    assert host.num_idle == 1
    assert host.store(keys(3, 2), Access()) is None
    assert there(host, [*a, *b]) == [True, True, True]
    assert host.store(keys(3, 1), Access()) == keys(3, 1)
    assert there(host, [*a, *b]) == [True, False, True]


@pytest.mark.parametrize("policy", ["lru", "arc"])
def test_offer_does_not_drop_its_own_chunks(policy):
    host = memory(2, eviction_policy=policy)
    a = keys(1, 3)
    stored(host, a[:2])
    assert host.store(a, Access()) is None
    assert there(host, a) == [True, True, False]


def test_threshold_stores_what_was_offered_often_enough():
    host = memory(9, store_threshold=2)
    a = keys(1, 2)
    assert host.store(a, Access()) == []
    assert host.store(a[:1], Access()) == a[:1]


def test_arc_keeps_what_was_used_again():
    """One prefix is used twice; many others, once each, do not push it out."""
    host = memory(4, eviction_policy="arc")
    a = keys(1, 2)
    host.request_ended(stored(host, a))
    host.request_ended(stored(host, a))
    for name in range(2, 9):
        host.request_ended(stored(host, keys(name, 1)))
    assert there(host, a) == [True, True]
    assert len(host) == 4


def test_arc_gives_room_to_the_list_whose_chunks_come_back():
    """A chunk that was used once and dropped is offered again: its list is to have more room."""
    host = memory(2, eviction_policy="arc")
    a, b, c = (keys(name, 1) for name in (1, 2, 3))
    for chunks in (a, b, c):
        host.request_ended(stored(host, chunks))
    assert there(host, [*a, *b, *c]) == [False, True, True]
    assert host._policy.target == 0
    stored(host, a)
    assert host._policy.target == 1


def test_arc_does_not_count_what_a_request_loads_of_its_own():
    """After it was preempted, for example."""
    host = memory(2, eviction_policy="arc")
    a, b = keys(1, 1), keys(2, 1)
    access = stored(host, a)
    host.load(a, access)
    host.loaded(a)
    host.request_ended(access)
    host.request_ended(stored(host, b))
    stored(host, keys(3, 1))
    assert there(host, [*a, *b]) == [False, True]


def old_memory(num_chunks, **settings):
    """Of version 0.19.0."""
    return HostMemory(OffloadSettings(num_chunks=num_chunks, **settings), rules=VERSIONS["0.19.0"])


def store_in_old(host, offered):
    """A request offers chunks, which are copied then; it is over."""
    new = host.store(offered, Access())
    host.use(offered)
    host.stored(new, Access())


def test_old_lru_drops_what_was_used_least_recently_by_any_request():
    host = old_memory(4)
    a, b = keys(1, 2), keys(2, 2)
    store_in_old(host, a)
    store_in_old(host, b)
    host.use(a)
    store_in_old(host, keys(3, 3))
    assert there(host, [*a, *b]) == [True, False, False, False]


def test_old_threshold_stores_what_was_looked_up_often_enough():
    """The chunks behind what the GPU has; what was offered does not count."""
    host = old_memory(9, store_threshold=2)
    a = keys(1, 3)
    for _ in range(2):
        host.use(a, num_sought=2)
        host.use(a)
    assert host.store(a, Access()) == a[1:]


def test_old_arc_takes_nothing_from_the_list_that_should_be_longer():
    """A chunk that came back raises the target of a list; the other one has nothing to give."""
    host = old_memory(2, eviction_policy="arc")
    a, b, c = (keys(name, 1) for name in (1, 2, 3))
    for chunks in (a, b, c):
        store_in_old(host, chunks)
    assert there(host, [*a, *b, *c]) == [False, True, True]
    host.use(a)
    assert host._policy.target == 1
    host.use(c)
    assert host.store(a, Access()) == a
    assert there(host, [*b, *c]) == [False, True]
    host.use(b)
    assert host._policy.target == 2
    host.load(c, Access())
    assert host.store(b, Access()) is None
    host.loaded(c)
    assert host.store(b, Access()) == b

"""Routers where replicas come and go: what they remembered of those that left is gone."""

import numpy as np
import pytest

from sim.des.routers.prefix_aware import PrefixTree
from sim.des.routers.router import tell_changed
from sim.testing.contracts.traffic import FakeReplica, arriving


def replicas(*loads):
    return [FakeReplica(load) for load in loads]


def test_session_sticky_session_follows_its_replica_and_leaves_one_that_has_left(router_of):
    """a on 0, b on 1, c on 2; replica 0 leaves, a new one comes first."""
    router, three = router_of("session-sticky"), replicas(0, 1, 2)
    for row, session in enumerate("abc"):
        index = row
        for number, replica in enumerate(three):
            replica.num_unfinished = 0 if number == index else 9
        assert router.choose(arriving(row, (row, 20), session=session), three) == index
    tell_changed(router, [-1, 1, 2])
    assert router.choose(arriving(3, (9, 20), session="b"), replicas(0, 9, 9)) == 1
    tell_changed(router, [1, 2])
    assert router.choose(arriving(4, (9, 20), session="c"), replicas(0, 9)) == 1
    # Its first replica is gone: it is assigned anew, as a new session is.
    assert router.choose(arriving(5, (9, 20), session="a"), replicas(9, 0)) == 1
    assert router.choose(arriving(6, (9, 20), session="a"), replicas(0, 9)) == 1


def test_prefix_aware_prefix_follows_its_replica_and_is_forgotten_with_it(router_of):
    """The same prompt again and again, while replicas before it leave and new ones come."""
    router = router_of("prefix-aware", balance_abs_threshold=64)
    prompt = (7, 160)
    assert router.choose(arriving(0, prompt), replicas(1, 0, 1)) == 1
    assert router.choose(arriving(1, prompt), replicas(0, 1, 0)) == 1
    tell_changed(router, [1, 2, -1])
    assert router.choose(arriving(2, prompt), replicas(5, 0, 0)) == 0
    tell_changed(router, [1, 2])
    # Nobody has it now: least load, then the fewest blocks.
    assert router.choose(arriving(3, prompt), replicas(1, 0)) == 1
    assert router.choose(arriving(4, prompt), replicas(0, 5)) == 1


@pytest.mark.parametrize("kind", ["session-sticky", "prefix-aware"])
def test_routers_with_memory_take_a_change_before_the_first_request(kind, router_of):
    """There is nothing to remember yet."""
    router = router_of(kind)
    tell_changed(router, [0, 2, -1])
    for row in range(2):
        request = arriving(row, (7, 160), session="a")
        assert router.choose(request, replicas(1, 0, 1)) == 1


def test_prefix_tree_forget_leaves_what_others_were_sent():
    """Blocks of both replicas stay for the other one, and its count stays right."""
    tree = PrefixTree(100)
    shared, own = [1, 2, 3], [1, 2, 9]
    tree.insert(np.array(shared, dtype=np.uint64), 0)
    tree.insert(np.array(own, dtype=np.uint64), 1)
    tree.forget(0)
    assert tree.num_blocks(0) == 0
    assert tree.num_blocks(1) == 3
    assert tree.match(np.array(shared, dtype=np.uint64)) == (2, 1)
    assert tree.match(np.array(own, dtype=np.uint64)) == (3, 1)
    tree.forget(1)
    assert tree.match(np.array(own, dtype=np.uint64)).num_blocks == 0
    tree.insert(np.array(shared, dtype=np.uint64), 0)
    assert tree.num_blocks(0) == 3


@pytest.mark.parametrize("kind", ["round-robin", "least-loaded", "random"])
def test_routers_without_memory_need_no_word_of_changes(kind, router_of):
    """They choose among those that they are shown."""
    router = router_of(kind)
    for number in (3, 1, 5, 2):
        tell_changed(router, [-1] * number)
        chosen = [
            router.choose(arriving(row, (row, 9)), replicas(*[0] * number)) for row in range(3)
        ]
        assert set(chosen) <= set(range(number))

"""Router prefix-aware goes by prefix while loads are even, else by load."""

import pytest

from sim.testing.contracts.traffic import FakeReplica, arriving

SHARED = (7, 160)
COLD = (8, 160)


def choose(router, loads, *segments):
    return router.choose(arriving(0, *segments), [FakeReplica(load) for load in loads])


@pytest.mark.parametrize(("own_tokens", "chosen"), [(352, 1), (384, 0)])
def test_prefix_aware_goes_by_the_prefix_above_the_threshold(router_of, own_tokens, chosen):
    """160 of 512 tokens are more than 0.3, 160 of 544 are not."""
    router = router_of("prefix-aware")
    assert choose(router, [1, 0], SHARED) == 1
    assert choose(router, [0, 1], SHARED, (9, own_tokens)) == chosen


def test_prefix_aware_share_at_the_threshold_is_not_above_it(router_of):
    """160 of 320 at 0.5."""
    router = router_of("prefix-aware", cache_threshold=0.5)
    assert choose(router, [1, 0], SHARED) == 1
    assert choose(router, [0, 1], SHARED, (9, 160)) == 0


@pytest.mark.parametrize(("loads", "chosen"), [([0, 4], 1), ([0, 5], 0), ([5, 10], 1), ([4, 9], 0)])
def test_prefix_aware_uneven_loads_win_over_the_prefix(router_of, loads, chosen):
    """More than 4 apart, and more than twice the least."""
    parameters = {"balance_abs_threshold": 4, "balance_rel_threshold": 2}
    router = router_of("prefix-aware", **parameters)
    assert choose(router, [1, 0], SHARED) == 1
    assert choose(router, loads, SHARED) == chosen


def test_prefix_aware_remembers_what_it_sent_because_of_the_load(router_of):
    """The prefix is there from now on, beside its older home, which is found first."""
    router = router_of("prefix-aware", balance_abs_threshold=4, max_tree_tokens=160)
    assert choose(router, [1, 0], SHARED) == 1
    assert choose(router, [0, 9], SHARED) == 0
    assert choose(router, [0, 0], SHARED) == 1
    assert choose(router, [9, 1], COLD) == 1
    assert choose(router, [1, 0], SHARED) == 0


def test_prefix_aware_unknown_prompt_goes_to_the_smallest_tree_of_the_least_loaded(router_of):
    """Load first, then what was sent there, then the first."""
    router = router_of("prefix-aware")
    assert choose(router, [0, 0, 0], (1, 320)) == 0
    assert choose(router, [0, 0, 0], (2, 160)) == 1
    assert choose(router, [1, 0, 1], (3, 160)) == 1
    assert choose(router, [0, 0, 0], (4, 480)) == 2
    assert choose(router, [0, 0, 0], (5, 160)) == 0
    assert choose(router, [0, 0, 9], (6, 160)) == 1


def test_prefix_aware_prompts_shorter_than_a_block_have_no_prefix(router_of):
    """They go by load, and are not remembered."""
    router = router_of("prefix-aware", block_tokens=64)
    assert choose(router, [1, 0], (1, 63)) == 1
    assert choose(router, [0, 1], (1, 63)) == 0
    assert choose(router, [1, 0], (1, 64)) == 1
    assert choose(router, [0, 1], (1, 64)) == 1

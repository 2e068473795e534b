"""Sessions stay where they began, for as long as they are remembered."""

from sim.testing.contracts.traffic import FakeReplica, arriving

_S = 10**9


def choose(router, loads, **request):
    return router.choose(arriving(0, (1, 5), **request), [FakeReplica(load) for load in loads])


def test_session_sticky_follows_the_first_request_of_a_session(router_of):
    """Also when that replica has become the busiest by far."""
    router = router_of("session-sticky")
    assert choose(router, [1, 0, 2], session="a") == 1
    assert choose(router, [1, 500, 0], session="b") == 2
    assert choose(router, [0, 500, 2], session="a") == 1


def test_session_sticky_without_a_session_goes_by_load(router_of):
    """Tenants are no sessions: theirs may be many conversations."""
    router = router_of("session-sticky")
    assert choose(router, [1, 0], tenant="x") == 1
    assert choose(router, [0, 1], tenant="x") == 0


def test_session_sticky_by_tenant_keeps_tenants_together(router_of):
    """Whatever sessions its requests name."""
    router = router_of("session-sticky", key="tenant")
    assert choose(router, [1, 0], tenant="x", session="a") == 1
    assert choose(router, [0, 1], tenant="x", session="b") == 1
    assert choose(router, [0, 1], session="a") == 0


def test_session_sticky_forgets_a_session_that_was_idle_for_so_long(router_of):
    """Idle counts from its last request; at the limit it is forgotten."""
    for pause_ns, chosen in ((10 * _S - 1, 1), (10 * _S, 0)):
        router = router_of("session-sticky", max_idle_s=10)
        assert choose(router, [1, 0], session="a") == 1
        assert choose(router, [0, 1], session="a", arrival_ns=7 * _S) == 1
        assert choose(router, [0, 1], session="a", arrival_ns=7 * _S + pause_ns) == chosen


def test_session_sticky_assignment_at_random_looks_at_no_loads(router_of):
    """A session stays where it was sent first; different sessions go to different replicas."""
    router = router_of("session-sticky", assignment="random")
    assert not router.looks_at_loads
    first = [choose(router, [0, 9, 9], session=f"s{number}") for number in range(20)]
    again = [choose(router, [9, 9, 0], session=f"s{number}") for number in range(20)]
    assert again == first
    assert set(first) == {0, 1, 2}


def test_session_sticky_without_a_limit_never_forgets(router_of):
    """A year later."""
    router = router_of("session-sticky", max_idle_s=None)
    assert choose(router, [1, 0], session="a") == 1
    assert choose(router, [0, 1], session="a", arrival_ns=365 * 86_400 * _S) == 1


def test_session_sticky_spills_from_a_replica_with_too_much(router_of):
    """Loads 30 and 20 of 100 on four: the mean with the new one is 25.25, times 1.25 is 31.6."""
    router = router_of("session-sticky", spill_load_factor=1.25)
    assert choose(router, [9, 0, 9, 9], session="a") == 1
    assert choose(router, [25, 31, 20, 24], session="a") == 1
    assert choose(router, [25, 32, 20, 23], session="a") == 2
    assert choose(router, [25, 31, 20, 24], session="a") == 1


def test_session_sticky_moves_with_what_is_spilled(router_of):
    """Its new replica is its home, also when the old one has nothing to do any more."""
    router = router_of("session-sticky", spill_load_factor=1.25, after_spill="move")
    assert choose(router, [9, 0, 9, 9], session="a") == 1
    assert choose(router, [25, 32, 20, 23], session="a") == 2
    assert choose(router, [25, 0, 20, 24], session="a") == 2


def test_session_sticky_spills_nothing_below_a_number_of_requests(router_of):
    """Three requests are many times the mean of 16 replicas, but need not be too much."""
    others = [0] * 14
    for above, chosen in ((0, 1), (2, 1), (3, 0)):
        router = router_of("session-sticky", spill_load_factor=1.25, spill_above=above)
        assert choose(router, [0, 1, *others], session="a") == 0
        assert choose(router, [3, 0, *others], session="a") == chosen


def test_session_sticky_assigned_at_random_looks_at_loads_to_spill(router_of):
    router = router_of("session-sticky", assignment="random", spill_load_factor=1.5)
    assert router.looks_at_loads

"""Routers that do not look at the request."""

from pydantic import TypeAdapter

from sim.des.routers.table import make_router
from sim.scenario.router_section import RouterConfig
from sim.testing.contracts.traffic import FakeReplica, arriving


def choices(router, loads, num_requests):
    replicas = [FakeReplica(load) for load in loads]
    return [router.choose(arriving(row, (row, 5)), replicas) for row in range(num_requests)]


def test_round_robin_takes_turns_whatever_the_loads(router_of):
    """From the first replica on."""
    assert choices(router_of("round-robin"), [9, 0, 3], 7) == [0, 1, 2, 0, 1, 2, 0]


def test_random_is_drawn_from_the_seed_alone(router_of):
    """The same seed chooses alike, whatever the loads; another seed otherwise."""
    few, many = [choices(router_of("random"), loads, 40) for loads in ([9, 0, 3], [0, 7, 7])]
    assert few == many
    assert set(few) == {0, 1, 2}
    other = make_router(TypeAdapter(RouterConfig).validate_python("random"), seed=1)
    assert choices(other, [9, 0, 3], 40) != few


def test_least_loaded_takes_the_smallest_load_and_the_first_of_several(router_of):
    """At every choice anew."""
    assert choices(router_of("least-loaded"), [4, 2, 7, 2], 3) == [1, 1, 1]
    assert choices(router_of("least-loaded"), [0, 0], 1) == [0]


def test_power_of_two_takes_the_less_loaded_of_two(router_of):
    """Never the most loaded one, the least loaded of three twice in three, one replica always."""
    chosen = choices(router_of("power-of-two"), [0, 5, 9], 300)
    assert 2 not in chosen
    assert 170 < chosen.count(0) < 230
    assert choices(router_of("power-of-two"), [7], 3) == [0, 0, 0]


def test_power_of_two_takes_the_first_drawn_of_equals(router_of):
    """All replicas equally often."""
    chosen = choices(router_of("power-of-two"), [2, 2, 2, 2], 400)
    assert all(70 < chosen.count(replica) < 130 for replica in range(4))

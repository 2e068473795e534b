"""Real-time traffic: requests arrive at their times, turns after the answers before them."""

from realrun.traffic import Traffic
from sim.testing.workloads import ListWorkload, scripted
from sim.workload.workload import Phase, Turn


def rids(requests):
    return [request.spec.rid for request in requests]


def test_traffic_gives_what_has_arrived_once():
    """Requests up to and at a time, in their order."""
    requests = [scripted(rid, (1, 4), output=1, arrival_ns=ns) for rid, ns in [("a", 3), ("b", 3)]]
    traffic = Traffic(ListWorkload([*requests, scripted("c", (1, 4), output=1, arrival_ns=9)]))
    assert traffic.next_ns == 3
    assert rids(traffic.arrived(2)) == []
    assert rids(traffic.arrived(3)) == ["a", "b"]
    assert traffic.next_ns == 9
    assert rids(traffic.arrived(100)) == ["c"]
    assert traffic.next_ns is None


def test_traffic_turn_follows_the_answer_after_a_think_time():
    """A client's second turn arrives `think_ns` after its first was over."""
    turns = [Turn(5, scripted("t0", (1, 4), output=1)), Turn(7, scripted("t1", (1, 4), output=1))]
    traffic = Traffic(ListWorkload(turns=[turns]))
    (first,) = traffic.arrived(5)
    assert (first.spec.rid, first.spec.arrival_ns) == ("t0", 5)
    assert traffic.next_ns is None
    traffic.over("somebody else", 50)
    assert traffic.next_ns is None
    traffic.over("t0", 100)
    assert traffic.next_ns == 107
    (second,) = traffic.arrived(107)
    traffic.over(second.spec.rid, 200)
    assert traffic.next_ns is None


def test_traffic_at_one_time_open_loop_comes_first():
    """As in the simulator."""
    turn = Turn(4, scripted("turn", (1, 4), output=1))
    open_loop = scripted("open", (1, 4), output=1, arrival_ns=4)
    traffic = Traffic(ListWorkload([open_loop], turns=[[turn]]))
    assert rids(traffic.arrived(4)) == ["open", "turn"]


def test_traffic_of_a_benchmark_takes_free_places_in_turn():
    """A place that got free counts from then, however late the server asks."""
    turns = [Turn(0, scripted(str(i), (1, 4), output=1)) for i in range(3)]
    traffic = Traffic(ListWorkload(benchmark=[Phase(turns=turns, places=2)]))
    assert rids(traffic.arrived(0)) == ["0", "1"]
    assert traffic.next_ns is None
    traffic.over("1", 40)
    assert traffic.next_ns == 40
    (third,) = traffic.arrived(90)
    assert (third.spec.rid, third.spec.arrival_ns) == ("2", 40)

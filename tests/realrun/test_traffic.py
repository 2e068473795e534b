"""Real-time traffic: requests arrive at their times, turns after the answers before them."""

from realrun.server.traffic import GivenUp, WorkloadTraffic
from sim.workload.workload import Phase, Turn, listed
from tests.support.workloads import scripted


class Clock:
    """Notes until when it was waited for."""

    until_ns = None

    def sleep_until(self, time_ns):
        self.until_ns = time_ns


def rids(requests):
    return [request.spec.rid for request in requests]


def next_ns(traffic):
    clock = Clock()
    traffic.wait(clock, None)
    assert traffic.is_over == (clock.until_ns is None)
    return clock.until_ns


def test_traffic_gives_what_has_arrived_once():
    """Requests up to and at a time, in their order."""
    requests = [scripted(rid, (1, 4), output=1, arrival_ns=ns) for rid, ns in [("a", 3), ("b", 3)]]
    traffic = WorkloadTraffic(listed([*requests, scripted("c", (1, 4), output=1, arrival_ns=9)]))
    assert next_ns(traffic) == 3
    assert rids(traffic.arrived(2)) == []
    assert rids(traffic.arrived(3)) == ["a", "b"]
    assert next_ns(traffic) == 9
    assert rids(traffic.arrived(100)) == ["c"]
    assert next_ns(traffic) is None


def test_traffic_turn_follows_the_answer_after_a_think_time():
    """A client's second turn arrives `think_ns` after its first was over."""
    turns = [Turn(5, scripted("t0", (1, 4), output=1)), Turn(7, scripted("t1", (1, 4), output=1))]
    traffic = WorkloadTraffic(listed(clients=[turns]))
    (first,) = traffic.arrived(5)
    assert (first.spec.rid, first.spec.arrival_ns) == ("t0", 5)
    assert next_ns(traffic) is None
    traffic.over("somebody else", 50)
    assert next_ns(traffic) is None
    traffic.over("t0", 100)
    assert next_ns(traffic) == 107
    (second,) = traffic.arrived(107)
    traffic.over(second.spec.rid, 200)
    assert next_ns(traffic) is None


def test_traffic_at_one_time_open_loop_comes_first():
    """As in the simulator."""
    turn = Turn(4, scripted("turn", (1, 4), output=1))
    open_loop = scripted("open", (1, 4), output=1, arrival_ns=4)
    traffic = WorkloadTraffic(listed([open_loop], clients=[[turn]]))
    assert rids(traffic.arrived(4)) == ["open", "turn"]


def test_traffic_of_a_benchmark_takes_free_places_in_turn():
    """A place that got free counts from then, however late the server asks."""
    turns = [Turn(0, scripted(str(i), (1, 4), output=1)) for i in range(3)]
    traffic = WorkloadTraffic(listed(phases=[Phase(turns=turns, places=2)]))
    assert rids(traffic.arrived(0)) == ["0", "1"]
    assert next_ns(traffic) is None
    traffic.over("1", 40)
    assert next_ns(traffic) == 40
    (third,) = traffic.arrived(90)
    assert (third.spec.rid, third.spec.arrival_ns) == ("2", 40)


def test_traffic_client_gives_up_before_arrivals_of_the_same_time():
    """Unless its request has ended: nobody waits for it any more."""
    patient = scripted("later", (1, 4), output=1, arrival_ns=8)
    leaving = [scripted(rid, (1, 4), output=1, arrival_ns=1, gives_up_ns=7) for rid in "ab"]
    traffic = WorkloadTraffic(listed([*leaving, patient]))
    assert rids(traffic.arrived(1)) == ["a", "b"]
    traffic.over("a", 3)
    gone, later = traffic.arrived(8)
    assert (gone, later.spec.rid) == (GivenUp("b"), "later")
    clock = Clock()
    traffic.wait(clock, 20)
    assert clock.until_ns == 20

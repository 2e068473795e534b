"""What other threads send is seen at its time, in its order, and not before."""

from concurrent.futures import ThreadPoolExecutor

from realrun.live.inbox import Inbox
from realrun.server.traffic import GivenUp
from tests.support.workloads import scripted


class Clock:
    """Stands still until it is moved."""

    def __init__(self):
        self.time_ns = 100

    def now_ns(self):
        return self.time_ns


def send(inbox, rid):
    return inbox.submit(lambda now_ns: scripted(rid, (1, 4), output=1, arrival_ns=now_ns))


def test_inbox_gives_times_after_the_last_look():
    """So a decision has seen all that came up to its time, although the clock stands still."""
    clock = Clock()
    inbox = Inbox(clock)
    send(inbox, "a")
    send(inbox, "b")
    assert [request.spec.rid for request in inbox.arrived(100)] == ["a"]
    assert [request.spec.arrival_ns for request in inbox.arrived(500)] == [101]
    send(inbox, "c")
    assert list(inbox.arrived(500)) == []
    (request,) = inbox.arrived(501)
    assert request.spec.arrival_ns == 501
    inbox.give_up("c")
    inbox.give_up("c")
    inbox.over("a", 502)
    inbox.give_up("a")
    assert list(inbox.arrived(502)) == [GivenUp("c")]
    assert request.spec.gives_up_ns == 1


def test_inbox_that_is_closed_ends_what_is_under_way():
    inbox = Inbox(Clock())
    send(inbox, "a")
    (_,) = inbox.arrived(1000)
    inbox.close()
    assert not send(inbox, "late")
    assert not inbox.is_over
    assert list(inbox.arrived(2000)) == [GivenUp("a")]
    assert inbox.is_over
    inbox.wait(Clock(), None)


def test_inbox_wakes_who_waits():
    """A request, or a time that has passed."""
    inbox, clock = Inbox(Clock()), Clock()
    inbox.wait(clock, 50)
    with ThreadPoolExecutor(1) as server:
        waits = server.submit(inbox.wait, clock, None)
        send(inbox, "a")
        waits.result()

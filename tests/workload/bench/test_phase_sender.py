"""Who sends what when: as a semaphore would, in the order of the list."""

from heapq import heappop, heappush
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from sim.workload.senders import PhaseSender
from sim.workload.workload import Phase, Turn
from tests.support.workloads import scripted


def turns(asked_ns):
    return [Turn(ns, scripted(str(i), (1, 4), output=1)) for i, ns in enumerate(asked_ns)]


def run(phases, latency_ns):
    """Arrival times by phase; request i of a phase takes `latency_ns[i % len]`."""
    sender, sent, ends = PhaseSender(phases), [], []
    now_ns = 0
    while True:
        for request in sender.due(now_ns):
            sent.append(request.spec.arrival_ns)
            took_ns = latency_ns[int(request.spec.rid) % len(latency_ns)]
            heappush(ends, (now_ns + took_ns, len(sent)))
        next_ns = sender.next_ns
        if ends and (next_ns is None or ends[0][0] < next_ns):
            now_ns, _ = heappop(ends)
            sender.over(now_ns)
        elif next_ns is None:
            return sent
        else:
            now_ns = next_ns


asked = st.lists(st.integers(0, 50), min_size=1, max_size=12).map(sorted)
latencies = st.lists(st.integers(0, 40), min_size=1, max_size=6)


@given(asked, latencies, st.integers(1, 5))
def test_requests_are_sent_as_with_a_semaphore(asked_ns, latency_ns, places):
    """Each in turn takes the place that is free first, once it is asked for."""
    free, expected = [0] * places, []
    for i, asked_at in enumerate(asked_ns):
        start = max(asked_at, heappop(free))
        heappush(free, start + latency_ns[i % len(latency_ns)])
        expected.append(start)
    assert run([Phase(turns=turns(asked_ns), places=places)], latency_ns) == expected


@given(asked, asked, latencies, st.sampled_from((None, 1, 3)))
def test_phase_begins_a_pause_after_all_of_the_one_before(first, second, latency_ns, places):
    """Nothing of two phases is under way at one time."""
    of_first = run([Phase(turns=turns(first), places=places)], latency_ns)
    taken = zip(of_first, (latency_ns[i % len(latency_ns)] for i in count()), strict=False)
    end_ns = max(sent + took for sent, took in taken)
    phases = [Phase(turns=turns(each), places=places) for each in (first, second)]
    phases[1] = Phase(turns=phases[1].turns, places=places, pause_ns=7)
    sent = run(phases, latency_ns)
    assert sent[: len(first)] == of_first
    alone = run([Phase(turns=turns(second), places=places)], latency_ns)
    assert sent[len(first) :] == [end_ns + 7 + ns for ns in alone]


def test_tick_without_a_free_place_is_lost():
    """A place that gets free between two ticks is taken at the next one."""
    phase = Phase(turns=turns([0] * 3), places=1, ticks=lambda: count(10, 10))
    assert run([phase], [25]) == [10, 40, 70]
    unlimited = Phase(turns=turns([0] * 3), places=None, ticks=lambda: count(10, 10))
    assert run([unlimited], [25]) == [10, 20, 30]

"""Inter-token gaps that are counted in groups equal those counted request by request."""

import itertools
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.engine.request import TokenClock
from sim.testing.contracts.policies import waiting_request

_NUM_REQUESTS = 5

# Events with the ns before them: a request joins or leaves, or all decode several tokens.
moves = st.lists(
    st.tuples(
        st.integers(0, 50),
        st.one_of(
            st.tuples(st.just("join"), st.integers(0, _NUM_REQUESTS - 1)),
            st.tuples(st.just("leave"), st.integers(0, _NUM_REQUESTS - 1)),
            st.tuples(st.just("tick"), st.lists(st.integers(1, 50), min_size=1, max_size=5)),
        ),
    ),
    max_size=60,
)


class BruteForce:
    """Remembers every token of every request."""

    def __init__(self):
        self.tokens = {i: [] for i in range(_NUM_REQUESTS)}
        self.decoding = set()

    def tick(self, now_ns):
        for i in self.decoding:
            self.tokens[i].append(now_ns)

    def gaps(self):
        counts = Counter()
        for times in self.tokens.values():
            counts.update(b - a for a, b in itertools.pairwise(times))
        return +counts


@given(moves)
def test_clock_any_history_counts_every_gap_once(history):
    """A gap over a pause, as after a retraction, counts like any other."""
    clock, brute = TokenClock(), BruteForce()
    requests = [waiting_request(f"r{i}", (1, 1)) for i in range(_NUM_REQUESTS)]
    now_ns = 0
    for wait_ns, (move, what) in history:
        now_ns += wait_ns
        if move == "tick":
            ends_ns = now_ns + np.cumsum(what)
            now_ns = int(ends_ns[-1])
            clock.tick_many(ends_ns)
            for end_ns in ends_ns.tolist():
                brute.tick(end_ns)
        elif move == "join" and what not in brute.decoding:
            clock.join(requests[what], now_ns)
            brute.decoding.add(what)
            brute.tokens[what].append(now_ns)
        elif move == "leave":
            clock.leave(requests[what])
            brute.decoding.discard(what)
    counted = Counter()
    gaps_ns, counts, _ = clock.take()
    for gap_ns, count in zip(gaps_ns.widened().tolist(), counts.widened().tolist(), strict=True):
        counted[gap_ns] += count
    assert +counted == brute.gaps()


runs = st.lists(st.integers(1, 100), min_size=1, max_size=30)


@given(st.lists(runs, min_size=1, max_size=4))
def test_clock_many_ticks_equal_single_ones(gaps_ns):
    """To the entry, not only in sum: logs must not tell."""
    ends_ns = np.split(
        np.cumsum(np.concatenate(gaps_ns)), np.cumsum([len(run) for run in gaps_ns[:-1]])
    )
    clocks = TokenClock(), TokenClock()
    for clock in clocks:
        clock.keeps_times = True
        for i in range(3):
            clock.join(waiting_request(f"r{i}", (1, 1)), -i)
    for number, run_ns in enumerate(ends_ns):
        clocks[0].tick_many(run_ns)
        for end_ns in run_ns.tolist():
            clocks[1].tick(end_ns)
        for clock in clocks:
            clock.join(waiting_request(f"later{number}", (1, 1)), int(run_ns[-1]))
    for many, single in zip(clocks[0].take(), clocks[1].take(), strict=True):
        assert many.widened().tolist() == single.widened().tolist()

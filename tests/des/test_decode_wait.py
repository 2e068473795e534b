"""A server waits for many decode steps at once, and an arrival cuts the wait short."""

import numpy as np
import pytest

from sim.des.clock import ARRIVAL, Clock, DecodeWait, TimedEvent, step_end


def test_skip_to_passes_time_when_nothing_is_due():
    """No event is needed then."""
    clock = Clock()
    TimedEvent(clock, 100, ARRIVAL)
    assert clock.skip_to(99)
    assert clock.now_ns == 99


@pytest.mark.parametrize("time_ns", [100, 101])
def test_skip_to_waits_for_what_is_due_before_or_at_that_time(time_ns):
    """Others of the same instant may have to go first."""
    clock = Clock()
    TimedEvent(clock, 100, ARRIVAL)
    assert not clock.skip_to(time_ns)
    assert clock.now_ns == 0


@pytest.mark.parametrize(
    ("arrives_ns", "num_steps", "lands_ns"), [(5, 0, 10), (10, 0, 10), (11, 1, 20), (30, 2, 30)]
)
def test_wait_lands_at_the_first_decision_that_sees_the_arrival(arrives_ns, num_steps, lands_ns):
    """Who waits for the landing goes on then, once; a decision at the very time sees it."""
    clock = Clock()
    wait_ = DecodeWait(clock, np.array([10, 20, 30]), step_end(0))
    landed_ns = []

    def wait():
        yield wait_.end
        landed_ns.append(clock.now_ns)

    def arrive():
        yield TimedEvent(clock, arrives_ns, ARRIVAL)
        wait_.cut_short(wait_.next_step)

    clock.process(wait())
    clock.process(arrive())
    clock.run()
    assert landed_ns == [lands_ns]
    assert wait_.num_steps == num_steps


def test_wait_lands_after_its_last_step():
    """When nobody arrives."""
    clock = Clock()
    wait_ = DecodeWait(clock, np.array([10, 20, 30]), step_end(0))
    clock.run()
    assert clock.now_ns == 30
    assert wait_.num_steps == 2

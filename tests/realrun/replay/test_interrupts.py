"""A signal that another thread gets while the loop waits ends the wait."""

import asyncio
import os
import selectors
import signal
import sys
import threading
from contextlib import suppress

import pytest

from realrun.replay.interrupts import run_interruptible


class Selector(selectors.DefaultSelector):
    """Says when it begins to wait without end."""

    def __init__(self):
        super().__init__()
        self.waits = threading.Event()

    def select(self, timeout=None):
        if timeout is None:
            self.waits.set()
        return super().select(timeout)


@pytest.fixture
def selector(monkeypatch):
    """The loop's; this thread gets no SIGINT, and no other one runs until this one waits."""
    made = Selector()
    monkeypatch.setattr(asyncio.events, "new_event_loop", lambda: asyncio.SelectorEventLoop(made))
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield made
    sys.setswitchinterval(interval)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    signal.signal(signal.SIGINT, handler)


def test_a_signal_for_another_thread_interrupts_the_wait_for_the_network(selector):
    over, loops, lost = threading.Event(), [], []

    def interrupt():
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        selector.waits.wait()
        os.kill(os.getpid(), signal.SIGINT)
        if not over.wait(20):
            lost.append("the signal")
            loops[0].call_soon_threadsafe(asyncio.all_tasks(loops[0]).pop().cancel)

    async def wait():
        loops.append(asyncio.get_running_loop())
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        over.set()

    thread = threading.Thread(target=interrupt)
    thread.start()
    run_interruptible(wait())
    thread.join()
    assert not lost

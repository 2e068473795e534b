"""Ctrl-C in a program that waits for the network."""

import asyncio
import signal
import socket
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_interruptible(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, but a signal always wakes the loop.

    Python handles a signal when the main thread goes on. The loop of asyncio waits in the operating
    system, and goes on only if the signal comes while it waits, and to its own thread. One that
    comes just before, or to another thread, would be seen when the next answer arrives: from a
    server that hangs, never.
    """
    return asyncio.run(_woken(main))


async def _woken(main: Coroutine[Any, Any, T]) -> T:
    if threading.current_thread() is not threading.main_thread():
        return await main
    loop = asyncio.get_running_loop()
    reading, writing = socket.socketpair()
    with reading, writing:
        reading.setblocking(False)
        writing.setblocking(False)
        # A byte for each signal is written by whichever thread gets it.
        before = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        loop.add_reader(reading, reading.recv, 4096)
        try:
            return await main
        finally:
            loop.remove_reader(reading)
            signal.set_wakeup_fd(before)

"""Sends the requests of a workload on time: arrivals, clients that wait for answers, and phases."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from sim.core.units import NS_PER_S
from sim.workload.senders import PhaseSender
from sim.workload.workload import ScriptedRequest, Tools, Turn, Workload, lanes

# Sends a request, and returns when its answer has ended.
Send = Callable[[ScriptedRequest], Awaitable[None]]


class ReplaySender:
    """Sends one workload. The clock starts when `run` does."""

    def __init__(self, workload: Workload, send: Send) -> None:
        self._workload, self._send = workload, send
        self._begin_ns = 0
        self._woken = asyncio.Event()

    def now_ns(self) -> int:
        """Time since the start."""
        return time.perf_counter_ns() - self._begin_ns

    async def run(self) -> None:
        """Send everything, and wait for all answers."""
        self._begin_ns = time.perf_counter_ns()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._open_loop(tasks))
            for waiting, tools in lanes(self._workload):
                tasks.create_task(self._clients(waiting, tools))
            phases = self._workload.phases
            if phases:
                tasks.create_task(self._phases(PhaseSender(phases), tasks))

    async def _until(self, time_ns: int) -> None:
        await asyncio.sleep(max(time_ns - self.now_ns(), 0) / NS_PER_S)

    async def _open_loop(self, tasks: asyncio.TaskGroup) -> None:
        for request in self._workload.arrivals():
            await self._until(request.spec.arrival_ns)
            tasks.create_task(self._sent(request))

    async def _clients(self, waiting: Iterator[Sequence[Turn]], tools: Tools | None) -> None:
        for turns in waiting:
            await self._client(turns, tools)

    async def _client(self, turns: Iterable[Turn], tools: Tools | None) -> None:
        for turn in turns:
            if turn.needs_tool and tools is not None:
                await self._until(tools.done_ns(self.now_ns(), turn.think_ns))
            else:
                await asyncio.sleep(turn.think_ns / NS_PER_S)
            await self._sent(turn.request)
            async with asyncio.TaskGroup() as sub_agents:
                for each in turn.sub_agents:
                    sub_agents.create_task(self._client(each, tools))

    async def _phases(self, sender: PhaseSender, tasks: asyncio.TaskGroup) -> None:
        under_way = 0

        async def send(request: ScriptedRequest) -> None:
            nonlocal under_way
            await self._sent(request)
            under_way -= 1
            sender.over(self.now_ns())
            self._woken.set()

        while True:
            self._woken.clear()
            for request in sender.due(self.now_ns()):
                under_way += 1
                tasks.create_task(send(request))
            next_ns = sender.next_ns
            if next_ns is None and not under_way:
                return
            wait_s = None if next_ns is None else max(next_ns - self.now_ns(), 0) / NS_PER_S
            # Not `wait_for`: in Python 3.11 it loses a cancellation that comes with the event.
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()

    async def _sent(self, request: ScriptedRequest) -> None:
        gives_up_ns = request.spec.gives_up_ns
        if gives_up_ns is None:
            await self._send(request)
            return
        try:
            async with asyncio.timeout(gives_up_ns / NS_PER_S):
                await self._send(request)
        except TimeoutError:
            return

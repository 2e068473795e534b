"""Where requests come from: a list of arrival times, or clients that wait for their answers."""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any

from simpy.events import Event

from sim.des.clock import ARRIVAL, Clock, TimedEvent
from sim.des.simulation_log import SimulationLog
from sim.workload.workload import ScriptedRequest, Turn

Submit = Callable[[ScriptedRequest], None]
Wait = Generator[Event, Any, None]


def open_loop(env: Clock, requests: Iterator[ScriptedRequest], submit: Submit) -> Wait:
    """Requests arrive at their own times, whatever becomes of the others."""
    for request in requests:
        arrival_ns = request.spec.arrival_ns
        if arrival_ns > env.now_ns:
            yield TimedEvent(env, arrival_ns - env.now_ns, ARRIVAL)
        submit(request)


def closed_loop(env: Clock, turns: Sequence[Turn], submit: Submit, log: SimulationLog) -> Wait:
    """A client sends its next request a think time after its last one is over."""
    for turn in turns:
        if turn.think_ns:
            yield env.timeout(turn.think_ns)
        spec = replace(turn.request.spec, arrival_ns=env.now_ns)
        over = env.event()
        log.when_over(spec.rid, over)
        submit(replace(turn.request, spec=spec))
        yield over

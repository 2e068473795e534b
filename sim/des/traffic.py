"""Clients that submit requests, and the simulation's log, which tells them when a request ended."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Protocol

from simpy.events import Event

from sim.core.errors import InputError
from sim.core.request import RequestSpec
from sim.core.units import MAX_TIME_NS
from sim.des.clock import ARRIVAL, Clock, TimedEvent
from sim.engine.account import Account
from sim.engine.records import RequestRecord
from sim.runlog.builder import BEYOND_CLOCK, RunLogBuilder, StepRun
from sim.runlog.decisions import StepLines
from sim.workload.senders import PhaseSender
from sim.workload.workload import (
    Phase,
    ScriptedRequest,
    Tools,
    Turn,
    Workload,
    lanes,
)

Submit = Callable[[ScriptedRequest], None]
Wait = Generator[Event, Any, None]
Watcher = Callable[[int, int], None]


class Follower(Protocol):
    """A router that follows how far requests are, to know the work of its replicas."""

    def prefilled(self, rid: str) -> None:
        """A request has its first token, or the first one after a retraction or preemption."""

    def over(self, rid: str) -> None:
        """A request has ended."""


# The watcher is called after this many steps even if no request ends: prompts may take thousands.
_WATCHED_STEPS = 256


class SimulationLog:
    """The log of a simulation while it runs.

    Args:
        decisions: gets every step too, for a decision log.
        watcher: called with the number of ended requests and the time, for a progress bar.

    Attributes:
        account: of the run.
        on_end: what is called with the record of each request that has ended.
        followers: the routers that follow how far requests are.
    """

    def __init__(self, decisions: StepLines | None = None, watcher: Watcher | None = None) -> None:
        self.builder = RunLogBuilder()
        self._decisions = decisions
        self._watcher = watcher
        self._awaited: dict[str, Event] = {}
        self.account = Account()
        self.on_end: list[Callable[[RequestRecord], None]] = []
        self._warms_up = False
        self._num_stepped = 0
        self.followers: list[Follower] = []

    def when_over(self, rid: str, event: Event) -> None:
        """Trigger `event` when the request has finished, or was rejected or aborted."""
        self._awaited[rid] = event

    def ends_warm_up(self, spec: RequestSpec) -> bool:
        """Whether this is the first request after warm-up requests."""
        ends, self._warms_up = self._warms_up and not spec.warm_up, spec.warm_up
        return ends

    def predicted(self, rid: str, cached_tokens: int) -> None:
        """A router believes that so much of a request is cached where it sends it now."""
        self.builder.predicted(rid, cached_tokens)

    def submitted(self, spec: RequestSpec, replica: int) -> None:
        if spec.arrival_ns > MAX_TIME_NS:
            raise InputError(BEYOND_CLOCK, key=("workload",))
        self.builder.submitted(spec, len(spec.prompt), replica)

    def handed_over(self, rid: str, columns: tuple[int, ...]) -> None:
        """How a request that is over soon was handed over, in the order of `HandoverColumns`."""
        self.builder.handed_over(rid, columns)

    def received(self, rid: str) -> None:
        """All KV of a request's prompt is on its decode server."""

    def over(self, records: Iterable[RequestRecord], now_ns: int) -> None:
        if self.followers:
            records = list(records)
            self._tell_followers_of_ends(records)
        for record in records:
            self.account.over(record.spec.rid, record.status)
            self.builder.over(record)
            event = self._awaited.pop(record.spec.rid, None)
            if event is not None:
                event.succeed()
            self._tell(record)
            if self._watcher is not None:
                self._watcher(self.builder.num_over, now_ns)

    def _tell(self, record: RequestRecord) -> None:
        for tell in self.on_end:
            tell(record)

    def stepped(self, run: StepRun) -> None:
        self.builder.stepped(run)
        if self.followers:
            self._tell_followers(run)
        if self._decisions is not None:
            self._decisions.stepped(run)
        self._num_stepped += 1
        if self._watcher is not None and not self._num_stepped % _WATCHED_STEPS:
            self._watcher(self.builder.num_over, run.end_ns)

    def passed(self, now_ns: int) -> None:
        """Time has passed in which perhaps nothing happened."""
        if self._watcher is not None:
            self._watcher(self.builder.num_over, now_ns)

    def _tell_followers_of_ends(self, records: Iterable[RequestRecord]) -> None:
        for record in records:
            for follower in self.followers:
                follower.over(record.spec.rid)

    def _tell_followers(self, run: StepRun) -> None:
        for row in run.batch.prefill:
            if row.samples:
                for follower in self.followers:
                    follower.prefilled(row.rid)


def open_loop(env: Clock, requests: Iterator[ScriptedRequest], submit: Submit) -> Wait:
    """Submit each request at its arrival time, whether or not earlier requests have ended."""
    for request in requests:
        arrival_ns = request.spec.arrival_ns
        if arrival_ns > env.now_ns:
            yield TimedEvent(env, arrival_ns - env.now_ns, ARRIVAL)
        submit(request)


class ClosedLoops:
    """Clients that wait for answers. `tools` are what their tool calls share; None: no limit."""

    def __init__(self, env: Clock, submit: Submit, log: SimulationLog, tools: Tools | None) -> None:
        self._env = env
        self._submit = submit
        self._log = log
        self._tools = tools

    def one_after_another(self, waiting: Iterator[Sequence[Turn]]) -> Wait:
        """Be a client, then the next one that waits, until none does."""
        for turns in waiting:
            yield from self.client(turns)

    def client(self, turns: Sequence[Turn]) -> Wait:
        """Be one client: in each turn think, submit the request, and wait until it has ended."""
        env = self._env
        for turn in turns:
            pause_ns = turn.think_ns
            if turn.needs_tool and self._tools is not None:
                pause_ns = self._tools.done_ns(env.now_ns, pause_ns) - env.now_ns
            if pause_ns:
                yield env.timeout(pause_ns)
            over = env.event()
            self._log.when_over(turn.request.spec.rid, over)
            self._submit(turn.request.sent_at(env.now_ns))
            yield over
            if turn.sub_agents:
                yield env.all_of([env.process(self.client(each)) for each in turn.sub_agents])


class PhaseProcess:
    """The process that sends the requests of a benchmark's phases."""

    def __init__(
        self, env: Clock, phases: Sequence[Phase], submit: Submit, log: SimulationLog
    ) -> None:
        self._env = env
        self._sender = PhaseSender(phases)
        self._submit = submit
        self._log = log
        self._woken = env.event()

    def run(self) -> Wait:
        """Send what is due, then wait until more is, or until a request is over."""
        env, sender = self._env, self._sender
        alarm, alarm_ns = env.event(), -1
        while True:
            self._woken = env.event()
            for request in sender.due(env.now_ns):
                over = env.event()
                over.callbacks.append(self._is_over)
                self._log.when_over(request.spec.rid, over)
                self._submit(request)
            next_ns = sender.next_ns
            if next_ns is None:
                yield self._woken
                continue
            if next_ns != alarm_ns:
                alarm, alarm_ns = env.timeout(next_ns - env.now_ns), next_ns
            yield self._woken | alarm

    def _is_over(self, event: Event) -> None:
        self._sender.over(self._env.now_ns)
        if not self._woken.triggered:
            self._woken.succeed()


def start_traffic(env: Clock, workload: Workload, submit: Submit, log: SimulationLog) -> None:
    """Start the processes that send the requests of a workload."""
    env.process(open_loop(env, workload.arrivals(), submit))
    for waiting, tools in lanes(workload):
        env.process(ClosedLoops(env, submit, log, tools).one_after_another(waiting))
    phases = workload.phases
    if phases:
        env.process(PhaseProcess(env, phases, submit, log).run())

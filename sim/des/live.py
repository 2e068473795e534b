"""Simulated servers that people send requests to while they run.

The simulation follows a clock that its driver reads, such as the wall clock: `advance` simulates
what is due by a time, and a request arrives at the time that the simulation has reached.

    live.advance(now_ns)          # the listener is told of all tokens until now
    live.submit(request)          # it arrives now
    next_ns = live.next_ns        # nothing happens before, unless a request arrives
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from sim.core.request import RequestSpec
from sim.des.clock import Clock
from sim.des.deployment import Deployment
from sim.des.run import Running
from sim.des.servers import RunOptions
from sim.des.traffic import SimulationLog
from sim.engine.core import EngineCore
from sim.engine.records import RequestRecord
from sim.engine.request import NEVER_NS, Request
from sim.runlog import RunLog
from sim.runlog.builder import StepRun
from sim.workload.workload import ScriptedRequest


class Listener(Protocol):
    """Gets notice of the tokens of requests, and of their ends."""

    def generated(self, rid: str, num_tokens: int) -> None:
        """A live request has this many output tokens now."""

    def over(self, record: RequestRecord) -> None:
        """A request has ended."""


class LiveClock(Clock):
    """A clock that goes no further than its driver allows.

    Attributes:
        until_ns: the time up to which the simulation may go.
    """

    def __init__(self) -> None:
        super().__init__()
        self.until_ns = 0

    def skip_to(self, time_ns: int) -> bool:
        return time_ns <= self.until_ns and super().skip_to(time_ns)

    @property
    def next_ns(self) -> int | None:
        """When the next event is due; None: there is none."""
        return int(self._events[0][0]) if self._events else None


class LiveLog(SimulationLog):
    """The log of live servers; it notes whose tokens the latest steps made.

    Attributes:
        numbers: by rid, the number of the server or rank that gives a request its output.
        num_steps: how many of the latest steps gave each request a token, by rid.
        received_rids: requests whose KV has come from a prefill server, and that have no token yet.
        ended: records of the requests that have just ended.
    """

    def __init__(self, *, keeps: bool) -> None:
        super().__init__()
        self.numbers: dict[str, int] = {}
        self.num_steps: dict[str, int] = {}
        self.received_rids: dict[str, None] = {}
        self.ended: list[RequestRecord] = []
        self._keeps = keeps

    def predicted(self, rid: str, cached_tokens: int) -> None:
        if self._keeps:
            super().predicted(rid, cached_tokens)

    def submitted(self, spec: RequestSpec, replica: int) -> None:
        self.numbers[spec.rid] = replica
        if self._keeps:
            super().submitted(spec, replica)

    def received(self, rid: str) -> None:
        self.received_rids[rid] = None

    def handed_over(self, rid: str, columns: tuple[int, ...]) -> None:
        if self._keeps:
            super().handed_over(rid, columns)

    def stepped(self, run: StepRun) -> None:
        if self._keeps:
            super().stepped(run)
        else:
            self._tell_followers(run)
        num_steps = self.num_steps
        for rid in [row.rid for row in run.batch.prefill if row.samples]:
            num_steps[rid] = num_steps.get(rid, 0) + 1
        for rid in run.batch.decode_rids:
            num_steps[rid] = num_steps.get(rid, 0) + 1

    def over(self, records: Iterable[RequestRecord], now_ns: int) -> None:
        records = list(records)
        if self._keeps:
            super().over(records, now_ns)
        else:
            self._tell_followers_of_ends(records)
            for record in records:
                self.account.over(record.spec.rid, record.status)
        self.ended += records


class LiveServers:
    """The servers of a scenario, without a workload of their own."""

    def __init__(
        self,
        deployment: Deployment,
        listener: Listener,
        options: RunOptions | None = None,
        *,
        keeps_log: bool = True,
    ) -> None:
        """Make the servers, which are simulated step by step, without fast-forward.

        The listener is told of tokens and ends. Without `keeps_log` there is no `log`, and memory
        does not grow with the run.
        """
        deployment = deployment.numbered()
        step_by_step = replace(options or RunOptions(), fast_forward=False)
        self._listener, self._keeps_log = listener, keeps_log
        self._env, self._log = LiveClock(), LiveLog(keeps=keeps_log)
        self._run = Running(self._env, deployment, self._log, step_by_step)
        self.engines: Sequence[EngineCore] = self._run.engines
        self._specs: dict[str, RequestSpec] = {}
        # Tokens that the listener knows of, by rid.
        self._num_told: dict[str, int] = {}
        # The most tokens that a step gives a request: one, and draft tokens.
        configs = [pool.servers.config for pool in deployment.pools]
        drafts = [getattr(config, "speculation", None) for config in configs]
        self._most_a_step = 1 + max(0 if each is None else each.num_tokens for each in drafts)
        self._run.start_servers()
        self.advance(0)

    @property
    def now_ns(self) -> int:
        return self._env.now_ns

    @property
    def next_ns(self) -> int | None:
        """When something happens next; None: nothing does, until a request arrives."""
        return self._env.next_ns

    def advance(self, until_ns: int) -> None:
        """Let everything happen that is due until this time; the clock never goes back.

        Raises InputError: a latency model or a user's class cannot go on.
        """
        env = self._env
        env.until_ns = max(until_ns, env.until_ns)
        while (next_ns := env.next_ns) is not None and next_ns <= env.until_ns:
            env.step()
            self._tell()
        env.skip_to(env.until_ns)

    def move_to(self, time_ns: int) -> None:
        """Set the clock to this time; without effect if something is due by then."""
        self._env.until_ns = time_ns
        self._env.skip_to(time_ns)

    def submit(self, request: ScriptedRequest) -> None:
        request = request.sent_at(self._env.now_ns)
        self._specs[request.spec.rid] = request.spec
        self._run.submit(request)
        self._tell()

    def cancel(self, rid: str) -> None:
        """The client of a request has gone; a second call changes nothing."""
        spec = self._specs.get(rid)
        if spec is None or spec.gives_up_ns is not None:
            return
        # If it is still in a front end, its server learns this when it gets the request.
        spec.gives_up_ns = self._env.now_ns - spec.arrival_ns
        self._run.give_up(rid)
        self.advance(self._env.now_ns)

    def close(self) -> None:
        """Everything that was to happen has happened.

        Raises AccountError: requests have not ended, or a server keeps something of them.
        """
        self._run.close()

    def log(self) -> RunLog:
        """The run log so far; afterwards the log is empty."""
        return self._log.builder.build(self._run.clocks, self._run.meta())

    @property
    def num_steps(self) -> int:
        return self._run.num_steps

    def _tell(self) -> None:
        """Tell the listener of new tokens and ends."""
        log = self._log
        if log.num_steps:
            counts, log.num_steps = log.num_steps, {}
            for rid, num_steps in counts.items():
                request = self._live_request(rid)
                if request is not None:
                    # `num_generated` may count a token in flight: the next step leaves the row out.
                    most = self._num_told.get(rid, 0) + num_steps * self._most_a_step
                    self._tell_of_tokens(rid, min(request.num_generated, most))
        if log.received_rids:
            self._tell_of_first_tokens()
        if log.ended:
            ended, log.ended = log.ended, []
            for record in ended:
                rid = record.spec.rid
                log.numbers.pop(rid, None)
                log.received_rids.pop(rid, None)
                self._num_told.pop(rid, None)
                if self._specs.pop(rid, None) is not None:
                    self._listener.over(record)
            if not self._keeps_log:
                for engine in self.engines:
                    engine.clock.forget()

    def _tell_of_first_tokens(self) -> None:
        """Tell of first tokens that came with the KV, which no step of the decode server makes."""
        for rid in tuple(self._log.received_rids):
            request = self._live_request(rid)
            if request is None or request.first_token_ns != NEVER_NS:
                del self._log.received_rids[rid]
            if request is not None and request.first_token_ns != NEVER_NS:
                self._tell_of_tokens(rid, 1)

    def _tell_of_tokens(self, rid: str, num_tokens: int) -> None:
        if num_tokens > self._num_told.get(rid, 0):
            self._num_told[rid] = num_tokens
            self._listener.generated(rid, num_tokens)

    def _live_request(self, rid: str) -> Request | None:
        """A request on the server that gives it its output."""
        number = self._log.numbers.get(rid)
        return None if number is None else self.engines[number].requests.get(rid)

"""Answers of simulated servers, in real time or faster."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from sim.api.answer import Answer, Asked, RefusedError, too_long
from sim.api.metrics import EngineLoad, Metrics, load_of
from sim.core.batch import OutputScript
from sim.core.request import RequestSpec, Status
from sim.core.tokens import ArrayPrompt, TokenIds, stream_token_ids
from sim.core.units import NS_PER_S
from sim.des.deployment import Deployment
from sim.des.live import LiveServers
from sim.des.servers import RunOptions
from sim.engine.records import RequestRecord
from sim.engine.server_config import PREFILL, context_tokens
from sim.runlog import RunLog
from sim.workload.workload import ScriptedRequest

# Greater than all token ids that clients send, and small enough for a trace that can be read.
_FLUSHED = 1 << 62
_ABOVE_VOCABULARIES = 32
# Seeds of the answers' tokens: those of a scenario's workload are others.
_FIRST_SEED = 1 << 24


class _Unfinished:
    """A request that has not ended: its answer so far, and the output that it will have."""

    def __init__(self, answer: Answer, script: OutputScript, spec: RequestSpec) -> None:
        self.answer, self.script, self.spec = answer, script, spec
        self.last_token_ns = 0


def _number(rid: str) -> int:
    return int(rid.partition("-")[2])


def _token_ids(rid: str, first: int, end: int) -> list[int]:
    """Tokens of a request's answer."""
    token_ids: list[int] = stream_token_ids(_FIRST_SEED + _number(rid), first, end).tolist()
    return token_ids


class LiveServer:
    """Simulated servers that answer HTTP clients; `speed`: simulated seconds in a second."""

    def __init__(
        self,
        deployment: Deployment,
        lengths: Iterator[int],
        *,
        metrics: Metrics,
        options: RunOptions | None = None,
        speed: float = 1.0,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
        keeps_log: bool = True,
    ) -> None:
        """Make the servers; `run` starts their clock.

        `lengths` are output tokens up to the end token of each answer, in order of arrival. Without
        `keeps_log` there is no `log`, and memory does not grow with the run.
        """
        self.speed = speed
        self._live = LiveServers(deployment, self, options, keeps_log=keeps_log)
        self._lengths, self._metrics = lengths, metrics
        self._clock_ns, self._begin_ns = clock_ns, clock_ns()
        self._unfinished: dict[str, _Unfinished] = {}
        self._num_asked = self._num_flushes = 0
        self._kept: list[RequestRecord] | None = [] if keeps_log else None
        self._asked = asyncio.Event()
        configs = [(pool.role, pool.servers.config) for pool in deployment.pools]
        # A prefill server has the prompt only; the others limit how long answers are.
        self._most_tokens = min(each.pool_tokens for role, each in configs if role != PREFILL)
        self._longest = min(min(each.pool_tokens, context_tokens(each)) for _, each in configs)

    @property
    def live(self) -> LiveServers:
        """The simulation."""
        return self._live

    @property
    def loads(self) -> list[EngineLoad]:
        """What each engine has to do now."""
        return [load_of(engine) for engine in self._live.engines]

    async def run(self) -> None:
        """Simulate at the speed of the clock until cancelled."""
        while True:
            self.catch_up()
            self._asked.clear()
            next_ns = self._live.next_ns
            wait_s = None
            if next_ns is not None:
                wait_s = max(next_ns - self._now_ns(), 0) / self.speed / NS_PER_S
            # Not `wait_for`: in Python 3.11 it loses a cancellation that comes with the event.
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._asked.wait()

    def _now_ns(self) -> int:
        return int((self._clock_ns() - self._begin_ns) * self.speed)

    def catch_up(self) -> None:
        """Simulate up to now."""
        self._live.advance(self._now_ns())

    # ---- for clients ---------------------------------------------------------------------------

    def ask(self, asked: Asked) -> Answer:
        self.catch_up()
        rid = f"live-{self._num_asked}"
        limit = self._most_tokens if asked.max_tokens is None else asked.max_tokens
        limit = min(limit, self._most_tokens)
        num_tokens = limit if asked.ignore_eos else max(next(self._lengths), asked.min_tokens)
        script = OutputScript(num_tokens, _FIRST_SEED + self._num_asked)
        spec = RequestSpec(
            rid,
            self._live.now_ns,
            ArrayPrompt(self._since_flush(asked.prompt)),
            limit,
            asked.priority,
            asked.ignore_eos,
        )
        self._num_asked += 1
        answer = Answer(rid, len(asked.prompt))
        self._unfinished[rid] = _Unfinished(answer, script, spec)
        self._live.submit(ScriptedRequest(spec, script))
        if answer.finish_reason == "abort":
            num_tokens = len(asked.prompt)
            if all(engine.scheduler.takes(num_tokens, limit) for engine in self._live.engines):
                raise RefusedError(503, "the request queue is full")
            raise too_long(len(asked.prompt), self._longest)
        self._asked.set()
        return answer

    def output_ids(self, answer: Answer, first: int, end: int) -> list[int]:
        return _token_ids(answer.rid, first, end)

    def cancel(self, answer: Answer) -> None:
        self.catch_up()
        self._live.cancel(answer.rid)
        self._asked.set()

    def flush_cache(self) -> bool:
        """Hide what is cached from all later requests; refused (False) while requests are left."""
        if self._unfinished:
            return False
        self._num_flushes += 1
        return True

    def _since_flush(self, prompt: TokenIds) -> TokenIds:
        """The prompt, with a first token that no prompt before the last flush had.

        So it shares no prefix with them. Their KV is still cached, and is evicted as it ages.
        """
        if self._num_flushes:
            prompt = prompt.copy()
            prompt[0] ^= _FLUSHED + (self._num_flushes << _ABOVE_VOCABULARIES)
        return prompt

    def log(self) -> RunLog:
        self._end()
        return self._live.log()

    def close(self) -> None:
        """End the run.

        Raises AccountError: a request is left over, or a server keeps something of one.
        """
        self._end()
        self._live.close()

    def _end(self) -> None:
        """Cancel the requests that are left, and simulate until the servers are idle."""
        self.catch_up()
        for rid in tuple(self._unfinished):
            self._live.cancel(rid)
        while (next_ns := self._live.next_ns) is not None:
            self._live.advance(next_ns)

    def answered(self) -> list[tuple[RequestRecord, list[int]]]:
        """The requests of the log in order of arrival, and the tokens of their answers."""
        records = sorted(self._kept or (), key=lambda record: _number(record.spec.rid))
        return [(each, _token_ids(each.spec.rid, 0, each.output_tokens)) for each in records]

    # ---- for the simulation --------------------------------------------------------------------

    def generated(self, rid: str, num_tokens: int) -> None:
        request = self._unfinished[rid]
        self._note_tokens(request, num_tokens)
        request.answer.note()

    def over(self, record: RequestRecord) -> None:
        request = self._unfinished.pop(record.spec.rid)
        if self._kept is not None:
            self._kept.append(record)
        answer, script, spec = request.answer, request.script, request.spec
        self._note_tokens(request, record.output_tokens)
        answer.cached_tokens = record.cached_tokens
        has_finished = record.status is Status.FINISHED
        if not has_finished:
            answer.finish_reason = "abort"
            if record.status is Status.REJECTED and record.first_token_ns >= 0:
                # SGLang computes one token of a prompt that is too long, and refuses it then.
                answer.refusal = too_long(answer.prompt_tokens, self._longest)
        elif not spec.ignore_eos and record.output_tokens >= script.num_tokens:
            answer.finish_reason = "stop"
        else:
            answer.finish_reason = "length"
        self._metrics.over(record, self._since_s(spec.arrival_ns) if has_finished else None)
        answer.note()

    def _note_tokens(self, request: _Unfinished, num_tokens: int) -> None:
        answer, now_ns = request.answer, self._live.now_ns
        num_new = num_tokens - answer.num_tokens
        if num_new <= 0:
            return
        if answer.num_tokens == 0:
            self._metrics.first_token(self._since_s(request.spec.arrival_ns))
            request.last_token_ns = now_ns
            num_new -= 1
        if num_new:
            self._metrics.tokens(num_new, self._since_s(request.last_token_ns))
        request.last_token_ns, answer.num_tokens = now_ns, num_tokens

    def _since_s(self, time_ns: int) -> float:
        return (self._live.now_ns - time_ns) / NS_PER_S

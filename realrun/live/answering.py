"""A real server that answers clients while it runs: the front's `Server`.

The scheduler has a thread of its own. Clients are served by an event loop in another one, and read
their answers at their own pace: the scheduler waits for no client.

    clients' thread                          scheduler's thread
    ask, cancel   -> Inbox ->                RealServer
    Answer        <- call_soon_threadsafe <- generated, over
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch

from realrun.clock import WallClock
from realrun.live.answer_params import answer_params
from realrun.live.inbox import Inbox
from realrun.live.served_tokens import ServedTokens
from realrun.runner.warm_runner import WarmRunner
from realrun.server.assemble import assemble, quiet_memory
from realrun.server.real_server import RealServer
from realrun.server.run_recorder import RunRecorder
from realrun.tokens.sampling import SamplingParams
from sim.api.answer import Answer, Asked, RefusedError, too_long
from sim.api.metrics import EngineLoad, Metrics, load_of
from sim.core.batch import OutputScript
from sim.core.errors import InvariantError
from sim.core.request import RequestSpec, Status
from sim.core.tokens import ArrayPrompt
from sim.core.units import NS_PER_S
from sim.engine.records import RequestRecord
from sim.engine.server_config import ServerConfig, context_tokens
from sim.workload.workload import ScriptedRequest


class _RealAnswer(Answer):
    """An answer with its tokens, and when it was asked for and last got one."""

    def __init__(self, rid: str, prompt_tokens: int, stop: tuple[str, ...]) -> None:
        super().__init__(rid, prompt_tokens)
        self.stop = stop
        self.ids: list[int] = []
        self.last_token_ns = 0


class _Ended(NamedTuple):
    """A request that has ended: its last tokens, and how many of them end it by their id."""

    record: RequestRecord
    new_ids: list[int]
    end_tokens: int | None


class AnsweringServer:
    """Answers clients with a warm runner. `run` serves until it is cancelled.

    Attributes:
        most_tokens: most tokens of a prompt and its answer.
    """

    def __init__(
        self,
        warm: WarmRunner,
        config: ServerConfig,
        tokens: ServedTokens,
        recorder: RunRecorder,
        *,
        metrics: Metrics,
        defaults: SamplingParams,
        max_requests: int,
    ) -> None:
        """Make the server.

        Args:
            warm: the model and its device.
            config: the scheduler's settings.
            tokens: the tokens of all answers.
            recorder: collects steps and requests.
            metrics: learns of tokens and ends, in the clients' thread.
            defaults: the values of sampling parameters that a client does not give.
            max_requests: most requests under way; a further one is refused.
        """
        self._warm, self._tokens, self._recorder = warm, tokens, recorder
        self._metrics, self._defaults, self._max_requests = metrics, defaults, max_requests
        clock = WallClock()
        self._inbox = Inbox(clock)
        self._engine, self._executor = assemble(warm, config, tokens, tokens.sampling_params)
        self._server = RealServer(
            self._engine,
            self._executor,
            self._inbox,
            clock,
            overlaps=config.overlaps,
            listener=self,
            recorder=recorder,
        )
        model = warm.runner.model
        self._vocab_size = model.shape.vocab_size
        self.most_tokens = min(context_tokens(config), config.pool_tokens, model.max_positions)
        self._answers: dict[str, _RealAnswer] = {}
        self._num_asked = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._load = load_of(self._engine)
        self._num_sent: dict[str, int] = {}

    @property
    def loads(self) -> list[EngineLoad]:
        """What the engine had to do after its last step."""
        return [self._load]

    async def run(self) -> None:
        """Serve; when it is cancelled, end what is under way first."""
        self._loop = asyncio.get_running_loop()
        # Its end waits for the thread, which ends as soon as nothing is under way.
        with ThreadPoolExecutor(1, thread_name_prefix="scheduler") as threads:
            work = threads.submit(self._serve)
            try:
                await asyncio.shield(asyncio.wrap_future(work))
            finally:
                self._inbox.close()
                for answer in self._answers.values():
                    answer.finish_reason = "abort"
                    answer.note()
        work.result()

    def _serve(self) -> None:
        device = self._warm.runner.model.device
        if device.type == "cuda":
            torch.cuda.set_device(device)  # each thread has a current device of its own
        with quiet_memory(self._warm):
            self._server.serve()

    # ---- for clients ---------------------------------------------------------------------------

    def ask(self, asked: Asked) -> Answer:
        num_tokens, sampling = len(asked.prompt), asked.sampling
        if sampling.not_followed is not None:
            raise RefusedError(400, f"{sampling.not_followed} is not supported")
        if (largest := int(asked.prompt.max())) >= self._vocab_size:
            raise RefusedError(
                400, f"prompt: there is no token {largest}: the model has {self._vocab_size}"
            )
        limit = self.most_tokens if asked.max_tokens is None else asked.max_tokens
        limit = min(limit, self.most_tokens)
        if not self._engine.scheduler.takes(num_tokens, limit):
            raise too_long(num_tokens, self.most_tokens)
        if len(self._answers) >= self._max_requests:
            raise RefusedError(503, f"{self._max_requests} requests are under way: try later")
        number, self._num_asked = self._num_asked, self._num_asked + 1
        rid = f"live-{number}"
        answer = _RealAnswer(rid, num_tokens, sampling.stop)
        self._tokens.expect(rid, answer_params(asked, self._defaults, self._tokens.end_ids, number))

        def arrive(now_ns: int) -> ScriptedRequest:
            spec = RequestSpec(
                rid, now_ns, ArrayPrompt(asked.prompt), limit, asked.priority, asked.ignore_eos
            )
            answer.last_token_ns = now_ns
            return ScriptedRequest(spec, OutputScript(limit, number))

        if not self._inbox.submit(arrive):
            raise RefusedError(503, "the server is shutting down")
        self._answers[rid] = answer
        return answer

    def output_ids(self, answer: Answer, first: int, end: int) -> list[int]:
        if not isinstance(answer, _RealAnswer):
            raise InvariantError("an answer of another server")
        return answer.ids[first:end]

    def cancel(self, answer: Answer) -> None:
        self._inbox.give_up(answer.rid)

    def _deliver(self, news: Mapping[str, list[int]], now_ns: int) -> None:
        for rid, ids in news.items():
            answer = self._answers[rid]
            self._add(answer, ids, now_ns)
            answer.note()

    def _end(self, ended: _Ended, now_ns: int) -> None:
        record = ended.record
        answer = self._answers.pop(record.spec.rid)
        self._add(answer, ended.new_ids, now_ns)
        answer.cached_tokens = record.cached_tokens
        e2e_s = None
        if record.status is Status.FINISHED:
            answer.finish_reason = "length" if ended.end_tokens is None else "stop"
            answer.hidden_tokens = ended.end_tokens or 0
            e2e_s = (now_ns - record.spec.arrival_ns) / NS_PER_S
        else:
            answer.finish_reason = "abort"
            if record.status is Status.REJECTED:
                answer.refusal = RefusedError(503, "the request queue is full")
                if record.first_token_ns >= 0:  # SGLang's way with prompts that nearly fill it
                    answer.refusal = too_long(answer.prompt_tokens, self.most_tokens)
        self._metrics.over(record, e2e_s)
        answer.note()

    def _add(self, answer: _RealAnswer, ids: list[int], now_ns: int) -> None:
        num_new = len(ids)
        since_s = (now_ns - answer.last_token_ns) / NS_PER_S
        if ids and not answer.ids:
            self._metrics.first_token(since_s)
            since_s, num_new = 0.0, num_new - 1
        if num_new:
            self._metrics.tokens(num_new, since_s)
        if ids:
            answer.last_token_ns = now_ns
        answer.ids += ids
        answer.num_tokens = len(answer.ids)

    # ---- for the server, in the scheduler's thread ---------------------------------------------

    def generated(self, num_tokens: Mapping[str, int], now_ns: int) -> None:
        news = {}
        for rid, number in num_tokens.items():
            first = self._num_sent.get(rid, 0)
            if number > first:
                news[rid] = self._tokens.output_part(rid, first, number)
                self._num_sent[rid] = number
        self._load = load_of(self._engine)
        if news and self._loop is not None:
            self._loop.call_soon_threadsafe(self._deliver, news, now_ns)

    def over(self, record: RequestRecord, now_ns: int) -> None:
        rid = record.spec.rid
        ids, end_tokens = self._tokens.take_output(rid, record.output_tokens)
        self._recorder.answered(rid, ids, self._executor.drafted_steps.pop(rid, None))
        first = self._num_sent.pop(rid, 0)
        self._load = load_of(self._engine)
        self._engine.clock.forget()  # its gaps between tokens, which a log takes from stamps
        if self._loop is not None:
            ended = _Ended(record, ids[first:], end_tokens)
            self._loop.call_soon_threadsafe(self._end, ended, now_ns)

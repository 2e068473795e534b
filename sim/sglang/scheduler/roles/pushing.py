"""Roles of SGLang's prefill and decode servers: a prefill server pushes KV when it is computed.

Both servers have a request from its arrival on. The prefill server waits until the decode server
has allocated the request's KV, and sends each chunk of the prompt when it is computed. Its first
output token comes with the KV.

SGLang 0.5.23: disaggregation/prefill.py and disaggregation/decode.py. Rules:
docs/explanation/disaggregation.md.
"""

from collections import deque
from collections.abc import Collection
from typing import cast

from sim.core.batch import JoiningExecutor, StepOutput
from sim.core.request import Status
from sim.engine.parts import Role
from sim.engine.records import Decided, Launch, RequestRecord
from sim.engine.request import NEVER_NS, Request
from sim.sglang.request import SglangRequest
from sim.sglang.scheduler.roles.decode_server import DecodeQueues
from sim.sglang.scheduler.roles.prefill_server import Agreement, PrefillQueues


class PushPrefill(Role):
    """Of a prefill server: computes prompts, and keeps their KV until it is sent.

    A request ends, with a record of one output token, when its KV has left.
    """

    def __init__(self, queues: PrefillQueues, num_stages: int = 1) -> None:
        """`queues`: those of the server."""
        super().__init__()
        self.keeps_prompts = True
        self._queues = queues
        # Whose KV has left, or is lost, as all stages know it; None: there is one stage.
        staged = Agreement[Collection[str]](num_stages) if num_stages > 1 else None
        self._agreement: Agreement[Collection[str]] | None = staged
        # Requests whose KV has left, or is lost, since the server last looked.
        self._sent, self._failed = set[str](), set[str]()
        # It has looked since the last decision.
        self._has_looked = False
        # When the latest step ends.
        self._free_ns = 0
        # Of each step in flight, oldest first, and of that whose result is taken in: ends of chunks
        # but the last ones.
        self._chunk_ends: deque[dict[str, int]] = deque()
        self._computed_ends: dict[str, int] = {}

    # ---- what the driver tells -----------------------------------------------------------------

    def partner_allocated(self, rid: str, num_cached_tokens: int) -> None:
        if rid in self.engine.requests:
            self._queues.note_room(rid)
            self._note_news()

    def sent(self, rid: str) -> None:
        self._sent.add(rid)
        self._note_news()

    def transfer_failed(self, rid: str) -> None:
        self._failed.add(rid)
        self._note_news()

    def _note_news(self) -> None:
        if self._agreement is not None:
            self._agreement.note_news()

    # ---- the moments of a step -----------------------------------------------------------------

    def begin_step(self, now_ns: int) -> Decided:
        """A server looks for KV that has left at the end of each pass.

        A pass ends with a result, if one is due, and with its decision otherwise.
        """
        if self._agreement is not None:
            return self._begin_turn(now_ns, self._agreement)
        over: list[RequestRecord] = []
        engine = self.engine
        if engine.in_flight and not self._has_looked:
            self._free(self._sent | self._failed, now_ns, over)
        self._has_looked = False
        decided = engine.decide(now_ns)
        again = self._queues.passes_again or self._queues.chunk_grew
        while decided.batch is None and not engine.in_flight and again:
            over += decided.over
            self._free(self._sent | self._failed, now_ns, over)
            decided = engine.decide(now_ns)
            again = self._queues.chunk_grew
        if decided.batch is None and not engine.in_flight and self._queues.passes_again:
            # There was news for this pass, too, and none for those that follow.
            self._queues.stay_idle()
        return decided.with_records([*over, *decided.over])

    def _begin_turn(self, now_ns: int, agreement: Agreement[Collection[str]]) -> Decided:
        """With stages: the pass before frees what they agree on when its result is taken in."""
        over: list[RequestRecord] = []
        if agreement.agreed:
            self._free(agreement.agreed, now_ns, over)
        decided = self.engine.decide(now_ns)
        is_idle = decided.batch is None and not self.engine.in_flight
        agreement.end_pass(self._queues.state, is_idle=is_idle)
        if is_idle and agreement.is_settled:
            self._queues.stay_idle()
        return decided.with_records([*over, *decided.over])

    def before_decision(self, now_ns: int, over: list[RequestRecord]) -> None:
        self._queues.take_ready(self._failed)
        # A request that is dropped leaves a place, which the next pass gives to another one.
        has_news = bool(self._sent or self._failed)
        if self._failed:
            self._drop_failed(over)
        if self._agreement is None:
            self._queues.passes_again = has_news and not self.engine.in_flight
            return
        gone = self._sent | self._failed
        self._agreement.send([rid for rid in self.sending if rid in gone])
        self._queues.passes_again = True  # Until all stages agree, which is known after the pass.

    def launched(self, launch: Launch[Request], at_ns: int) -> None:
        """Say what may be sent early: when the step before has ended, which may still write it.

        `Scheduler.run_batch` in managers/scheduler.py does so for each step, but not for one that
        loads: the loads may still write what other requests have found on the device.
        """
        floor = self.engine.kv.floor_page
        self._chunk_ends.append({each.rid: floor(each.extend_end) for each in launch.chunked})
        # SGLANG_DISAGG_PREFILL_EARLY_SEND_CACHED_PREFIX is on by default.
        if any(request.load_tokens for request in launch.prefill):
            return
        from_ns = max(at_ns, self._free_ns)
        for request in launch.prefill:
            if (end := self._early_end(cast("SglangRequest", request))) > 0:
                rid = request.rid
                self.scheduler.partner.computed(rid, end, is_last=False, from_ns=from_ns)

    def step_ends(self, end_ns: int) -> None:
        self._free_ns = end_ns

    def _early_end(self, request: SglangRequest) -> int:
        """How much of a prompt is sent when a step with it is launched.

        `maybe_send_cached_prefix_chunk` takes off what the match had found in host memory, even if
        it is loaded by now, or was too little to be loaded. So a chunk that follows a load may be
        sent in two parts: this one, and the rest with the chunk's result. With stages a chunk is
        sent when the next one is decided, and nothing is left to be sent early.
        """
        if self._agreement is not None and request.prefix_len != request.cached_tokens:
            return 0
        end = request.prefix_len - request.kv.host_len
        return end if end == self.engine.kv.floor_page(end) else 0

    def begin_result(self, output: StepOutput, now_ns: int) -> None:
        self._computed_ends = self._chunk_ends.popleft()

    def chunk_computed(self, request: Request) -> None:
        end = self._computed_ends[request.rid]
        self.scheduler.partner.computed(request.rid, end, is_last=False)

    def prompt_computed(self, request: Request, now_ns: int, records: list[RequestRecord]) -> None:
        rid = request.rid
        if rid in self.engine.ending:
            self.scheduler.discard(request)
            records.append(self.engine.end_unserved(request, request.end_status))
            return
        request.num_generated += 1
        request.first_token_ns = now_ns
        self.scheduler.prefill_computed(request)
        request.chunk_computed()
        self._queues.hold(cast("SglangRequest", request))
        self.sending[rid] = request
        self.scheduler.partner.computed(rid, request.prompt_len, is_last=True)

    def result_taken(self, now_ns: int, records: list[RequestRecord]) -> None:
        if self._agreement is None:
            self._free(self._sent | self._failed, now_ns, records)
            self._has_looked = True

    # ---- questions -----------------------------------------------------------------------------

    @property
    def decides_again(self) -> bool:
        return self._agreement is not None and not self._agreement.is_settled

    def num_launchable(self, num_waiting: int) -> int:
        """0 while KV is being sent: the next decision may have to wait until memory is freed."""
        return 0 if self.sending else num_waiting

    def aborts(self, request: Request) -> bool:
        """A request whose KV is being sent ends when the server next looks for KV that has left."""
        if request.rid not in self.sending:
            return False
        self._failed.add(request.rid)
        self._note_news()
        return True

    def _drop_failed(self, over: list[RequestRecord]) -> None:
        """End the requests that wait for something that failed; those in a batch go on with it.

        With stages, SGLang looks at the bootstrap queue alone: a request that has left it goes on.
        """
        requests = self.engine.requests
        unseen = [request.rid for request in self.engine.input_queue.requests]
        for rid in sorted(self._failed):
            request = requests.get(rid)
            if request is None or request.status is not Status.WAITING or rid in unseen:
                continue
            if self._agreement is None or request in self._queues.bootstrapping:
                self.engine.abort(request, over)
        self._failed = {rid for rid in self._failed if rid in requests}

    def _free(self, gone: Collection[str], now_ns: int, records: list[RequestRecord]) -> None:
        """End the requests whose KV has left, or need not leave any more, in order of prefill."""
        for rid in [rid for rid in self.sending if rid in gone] if gone else ():
            request = self.sending[rid]
            if rid in self._failed:
                self.engine.ending[rid] = request
            self._failed.discard(rid)
            self._sent.discard(rid)
            del self.sending[rid]
            self._queues.let_go(cast("SglangRequest", request))
            records.append(self.engine.finish(request, now_ns))


class PushDecode(Role):
    """Of a decode server: takes requests whose prompts another server has computed."""

    def __init__(self, queues: DecodeQueues, executor: JoiningExecutor) -> None:
        """`queues`: those of the server; `executor`: runs its batches."""
        super().__init__()
        self._queues = queues
        self._executor = executor
        # Rows that joined while a step without them was in flight; and rows that have stopped, as
        # the batch in flight says.
        self._joined: list[Request] = []
        self._stopped: frozenset[str] = frozenset()

    # ---- what the driver tells -----------------------------------------------------------------

    def received(self, rid: str) -> None:
        if rid in self.engine.requests:
            self._queues.note_received(rid)

    def transfer_failed(self, rid: str) -> None:
        request = self.engine.requests.get(rid)
        if request is not None:
            self._queues.note_failed(cast("SglangRequest", request))

    # ---- the moments of a step -----------------------------------------------------------------

    def begin_step(self, now_ns: int) -> Decided:
        """A server that launches nothing makes the next pass at once."""
        engine = self.engine
        decided = engine.decide(now_ns)
        over = list(decided.over)
        if self._queues.stages is not None:
            self._queues.end_turn(is_idle=decided.batch is None and not engine.in_flight)
            over += [engine.end_unserved(request) for request in self.scheduler.take_dropped()]
        while decided.batch is None and not engine.in_flight and self._passes_again(decided):
            decided = engine.decide(now_ns)
            over += decided.over
        self._stopped = frozenset(() if decided.batch is None else decided.batch.stopped_rids)
        return decided.with_records(over)

    def _passes_again(self, decided: Decided) -> bool:
        queues = self._queues
        return queues.stages is None and (bool(decided.over) or queues.passes_again)

    @property
    def decides_again(self) -> bool:
        stages = self._queues.stages
        return stages is not None and not stages.agreement.is_settled

    def before_decision(self, now_ns: int, over: list[RequestRecord]) -> None:
        """Give requests that can decode now their first token, which the prefill server drew."""
        engine = self.engine
        num_missed_steps = engine.num_missed_steps
        joining: list[Request] = []
        taken = self._queues.take_joining(now_ns)
        over += [engine.end_unserved(request) for request in self.scheduler.take_dropped()]
        for request in taken:
            if request.first_token_ns == NEVER_NS:
                request.first_token_ns = request.last_token_ns = now_ns
            if self._is_over(request, num_missed_steps):
                over.append(engine.finish(request, now_ns))
            else:
                joining.append(request)
        if joining:
            self.scheduler.running.append(joining, num_missed_steps=num_missed_steps)
            self._joined += joining
            if not num_missed_steps:
                self._start_clocks()

    def _is_over(self, request: Request, num_missed_steps: int) -> bool:
        """Tell the executor of a request that decodes from now on; whether its answer is complete.

        The request may have decoded before, and have been retracted.
        """
        rid = request.rid
        stopped = self.engine.stopped_since_batch
        if rid in stopped:
            stopped.remove(rid)
        is_back = bool(self.engine.in_flight) and rid in self._stopped
        is_over = self._executor.join(rid, request.num_generated, num_missed_steps, is_back=is_back)
        return is_over or request.num_generated >= request.max_new_tokens

    def result_taken(self, now_ns: int, records: list[RequestRecord]) -> None:
        self._start_clocks()

    def _start_clocks(self) -> None:
        """Measure the gaps of rows that joined, from their last token to the next step's."""
        joined, self._joined = self._joined, []
        for request in joined:
            if request.status is Status.RUNNING and request.in_running_batch:
                self.engine.clock.resume(request)

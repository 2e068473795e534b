"""Decides the next batch as vLLM v1 does with speculative decoding.

The rules are those of `sim.vllm.scheduler.scheduler`, but a row may compute several tokens: its
last known one and its draft tokens. Under async scheduling a step is decided before it is known how
many drafts of the step before are accepted. It counts on all of them, and what was rejected is
taken back later (rule 15 of docs/explanation/vllm.md).

vLLM 0.19.0 and 0.33.0: `schedule`, `update_from_output` and `update_draft_token_ids` of
`Scheduler` (v1/core/sched/scheduler.py), and `AsyncScheduler` (async_scheduler.py).
"""

from collections.abc import Iterable, Sequence

from sim.core.batch import ForwardMode
from sim.core.errors import InvariantError
from sim.core.request import RequestSpec, Status
from sim.core.tokens import TokenSequence
from sim.engine.front_end_limits import FrontEndLimits
from sim.engine.page_pool import Span
from sim.engine.request import OutputTokens
from sim.engine.scheduler import BaseScheduler, Decision, Launch
from sim.engine.row_engine import RowLaunch
from sim.vllm.cache.memory import BlockMemory
from sim.vllm.cache.request_blocks import LookaheadBlocks, RequestBlocks
from sim.vllm.config import VllmConfig
from sim.vllm.request import RowRequest
from sim.vllm.scheduler.aligned_chunks import aligned_chunks_of
from sim.vllm.scheduler.row_admission import RowAdmission
from sim.vllm.scheduler.row_pass import RowPass
from sim.vllm.scheduler.drafting import drafting_of
from sim.vllm.scheduler.preempting_pass import Preemption
from sim.vllm.scheduler.step_limits import PrefillCadence, PromptLimits, largest_chunk
from sim.vllm.scheduler.waiting_queue import build_waiting


class RowScheduler(BaseScheduler[RowRequest]):
    """The scheduler of a vLLM v1 server with speculative decoding.

    Attributes:
        waiting: requests without blocks.
        admitted: requests with blocks, in order of admission (vLLM's list `running`).
    """

    family = "vllm"

    def __init__(self, config: VllmConfig, *, kv: BlockMemory) -> None:
        super().__init__(kv)
        self.keeps_tokens_in_flight = True
        self.aborts_before_results = True
        self.fills_places = config.rules.fills_batch_queue
        self._config = config
        self._kv = kv
        self._drafting = drafting_of(config)
        self.waiting = build_waiting(config.scheduling_policy)
        self.admitted: list[RowRequest] = []
        self._decision: Decision[RowRequest] = Decision()
        self._admission = RowAdmission(
            config, drafting=self._drafting, kv=kv, waiting=self.waiting
        )
        self._aligned = aligned_chunks_of(config)
        self._cadence = PrefillCadence(config.prefill_schedule_interval)
        self._num_entries = 0
        self._num_decided = 0
        queued = config.max_num_queued_reqs, config.max_num_queued_tokens
        if queued != (None, None):
            self.front_end_limits = FrontEndLimits(*queued)

    # ---- requests ------------------------------------------------------------------------------

    def token_limit(self, prompt_len: int, max_new_tokens: int) -> int:
        """`max_new_tokens` as far as `max_model_len` allows; 0 or less: rejected (rule 1)."""
        return min(max_new_tokens, self._config.max_model_len - prompt_len)

    def new_request(self, spec: RequestSpec, limit: int, outputs: OutputTokens) -> RowRequest:
        blocks = LookaheadBlocks if self._drafting.hash_lookahead else RequestBlocks
        return RowRequest(spec, blocks(spec.prompt, outputs), limit=limit)

    def enter(self, request: RowRequest) -> None:
        self._num_entries += 1
        request.entry = self._num_entries
        self.waiting.add(request)

    def abort(self, request: RowRequest, in_flight: Sequence[Launch[RowRequest]]) -> bool:
        """As `finish_requests`: it is gone at once, and its tokens in flight are lost."""
        if request.status is Status.WAITING:
            self.withdraw(request)
        else:
            self.give_back(request)
            self.admitted = [each for each in self.admitted if each is not request]
        return True

    def withdraw(self, request: RowRequest) -> None:
        self.waiting.remove(request)
        self._admission.deferred.discard(request)

    @property
    def num_waiting(self) -> int:
        return len(self.waiting)

    def waiting_requests(self) -> Iterable[RowRequest]:
        return [request for request in self.waiting.all() if isinstance(request, RowRequest)]

    def requests_elsewhere(self) -> Iterable[RowRequest]:
        """All admitted requests: none is a row of a batch in lockstep."""
        return self.admitted

    def give_back(self, request: RowRequest) -> None:
        self._kv.release(request.kv, request.seq_len)
        self.free_slot(request)

    def in_order_of_end(self, finishing: list[RowRequest]) -> list[RowRequest]:
        """Requests free their blocks in order of admission (rule 8)."""
        return sorted(finishing, key=lambda request: request.admission)

    # ---- the step ------------------------------------------------------------------------------

    def decide(self, now_ns: int, in_flight: Launch[RowRequest] | None) -> Decision[RowRequest]:
        decision = self._decision = Decision()
        self.admitted = [r for r in self.admitted if r.status is Status.RUNNING]
        self._kv.num_decisions += 1
        self._num_decided += 1
        limits = PromptLimits(
            largest_chunk(self._config, len(self.admitted) + len(self.waiting)),
            self._cadence.interval > 1 and self._cadence.defers(self._decodes),
            self._aligned,
        )
        steps = RowPass(
            self._config,
            drafting=self._drafting,
            kv=self._kv,
            admitted=self.admitted,
            preempt=self._preempt,
            limits=limits,
            number=self._num_decided,
        )
        steps.run()
        admitted: list[RowRequest] = []
        if not decision.preempted:
            admitted = self._admission.run(
                self.admitted,
                steps.budget,
                limits,
                rows=[*steps.rows, *steps.chunks],
                has_prefilled=steps.has_prefilled,
            )
            self.num_slots_used += len(admitted)
            if not limits.are_deferred:
                self._cadence.admitted(len(self.waiting) - len(self._admission.deferred))
        chunks = [request for request in steps.chunks if isinstance(request, RowRequest)]
        num_drafts = [steps.num_drafts[row] for row in steps.rows]
        decision.launch = self._launch([*chunks, *admitted], steps.rows, num_drafts)
        self._cadence.decided(
            prefills=steps.has_prefilled or any(r.fill_len - r.prefix_len > 1 for r in admitted),
            num_steps=int(decision.launch is not None),
        )
        # Results that come in now make blocks full after those of this decision.
        self._kv.num_decisions += 1
        return decision

    @property
    def _decodes(self) -> bool:
        """A running request has computed, or is about to compute, its whole prompt."""
        return any(not request.is_prefilling for request in self.admitted)

    def _preempt(self, preemption: Preemption) -> None:
        """Free all blocks of a running request and put it back; it is computed again (rule 4)."""
        by, victim, _ = preemption
        if not (isinstance(by, RowRequest) and isinstance(victim, RowRequest)):
            raise InvariantError("a request has no place for drafts")
        self._kv.release(victim.kv, victim.seq_len)
        self.free_slot(victim)
        victim.num_drafts = 0
        victim.num_stale, victim.num_placeholders = victim.num_in_flight, 0
        victim.status = Status.WAITING
        victim.lose_prefix()
        victim.preemptions += 1
        self.waiting.put_back(victim)
        self._decision.preempted.append((by, [victim]))

    def _launch(
        self, prefill: list[RowRequest], rows: list[RowRequest], num_drafts: list[int]
    ) -> RowLaunch[RowRequest] | None:
        if not (prefill or rows):
            return None
        mode = ForwardMode.DECODE
        if prefill:
            mode = ForwardMode.MIXED if rows else ForwardMode.EXTEND
        chunked = tuple([request for request in prefill if request.is_prefilling])
        padding = [request.padding for request in prefill]
        for row, number in zip(rows, num_drafts, strict=True):
            self._note_launched(row, 1 + number, 1 + number)
        for request in prefill:
            samples = not request.is_prefilling
            self._note_launched(request, request.extend_len, samples * (1 + request.padding))
        contexts = [row.seq_len for row in rows]
        return RowLaunch(
            mode, prefill, rows, chunked, drafts=num_drafts, contexts=contexts, padding=padding
        )

    def _note_launched(self, request: RowRequest, num_tokens: int, most_sampled: int) -> None:
        request.num_in_flight += num_tokens
        request.num_samples += most_sampled > 0
        if self._config.async_scheduling and most_sampled:
            request.num_placeholders += most_sampled
            request.num_drafts = self._drafting.num_tokens
            request.next_decode_step = self._num_decided + self._config.micro_batches

    # ---- results -------------------------------------------------------------------------------

    def chunk_done(self, request: RowRequest, num_tokens: int) -> None:
        request.result_came(num_tokens)

    def prompt_done(
        self, request: RowRequest, *, num_tokens: int, num_drafts: int, num_proposed: int
    ) -> None:
        self._result_came(
            request,
            num_tokens=num_tokens,
            num_drafts=num_drafts,
            num_sampled=1,
            num_kept=1,
            num_proposed=num_proposed,
        )

    def verified(
        self,
        request: RowRequest,
        *,
        num_drafts: int,
        num_sampled: int,
        num_kept: int,
        num_proposed: int,
    ) -> None:
        self._result_came(
            request,
            num_tokens=1 + num_drafts,
            num_drafts=num_drafts,
            num_sampled=num_sampled,
            num_kept=num_kept,
            num_proposed=num_proposed,
        )

    def _result_came(
        self,
        request: RowRequest,
        *,
        num_tokens: int,
        num_drafts: int,
        num_sampled: int,
        num_kept: int,
        num_proposed: int,
    ) -> None:
        is_stale = request.result_came(num_tokens)
        request.num_samples -= 1
        is_async, rules = self._config.async_scheduling, self._config.rules
        num_rejected = num_drafts - (num_sampled - 1) if num_drafts else 0
        has_places = request.num_placeholders > 0
        if not is_stale:
            if request.seq_len > 0:
                request.seq_len -= num_rejected
            if has_places:
                request.num_placeholders -= num_rejected + num_sampled
        if not is_async:
            request.num_drafts = num_proposed
        if is_stale or request.status is not Status.RUNNING:
            return
        # Tokens after the end of the output were not computed for anything.
        num_computed = request.seq_len - (num_sampled - num_kept)
        if not (is_async or rules.caches_verified) or not (has_places or self._drafting.num_tokens):
            return
        if rules.caches_verified:
            num_cached = num_computed - request.num_in_flight
        else:
            num_cached = num_computed - request.num_placeholders
        self._kv.note_full(request.kv, num_cached, request.num_tokens + num_kept)

    def idle(self, now_ns: int, decision: Decision[RowRequest]) -> int | None:
        if decision.preempted or not (self.admitted or len(self.waiting)):
            return None
        raise InvariantError(
            f"{len(self.waiting)} requests wait and {len(self.admitted)} run, but none gets a token"
        )

    # ---- state, for the engine and logs --------------------------------------------------------

    @property
    def repeats(self) -> bool:
        return False

    @property
    def num_running(self) -> int:
        return len(self.admitted)

    @property
    def batch_is_full(self) -> bool:
        return len(self.admitted) >= self._config.max_active

    @property
    def chunked_rid(self) -> str | None:
        return next((request.rid for request in self.admitted if request.is_prefilling), None)

    def token_ids(self, request: RowRequest, num_tokens: int) -> TokenSequence:
        return request.kv.token_ids(num_tokens)

    def spans(self, request: RowRequest, num_tokens: int) -> list[Span]:
        return self._kv.spans(request.kv, num_tokens)

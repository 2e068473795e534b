"""The scheduler of servers that are decided row by row: each row has its own number of tokens.

`sim.vllm.scheduler.scheduler` says which servers these are. A row may compute several tokens: its
last known one and its draft tokens. Results may come in several steps later. Under async scheduling
a step is decided before it is known how many drafts of the step before are accepted. It counts on
all of them, and what was rejected is taken back later (rule 15 of docs/explanation/vllm.md).

vLLM 0.19.0 and 0.33.0: `schedule`, `update_from_output` and `update_draft_token_ids` of
`Scheduler` (v1/core/sched/scheduler.py), and `AsyncScheduler` (async_scheduler.py).
"""

from collections.abc import Sequence

from sim.core.request import RequestSpec, Status
from sim.engine.request import OutputTokens
from sim.engine.row_results import RowLaunch
from sim.engine.scheduler import Decision, Launch
from sim.vllm.cache.memory import BlockMemory
from sim.vllm.cache.request_blocks import LookaheadBlocks, RequestBlocks
from sim.vllm.config import VllmConfig
from sim.vllm.request import RowRequest
from sim.vllm.scheduler.drafting import drafting_of
from sim.vllm.scheduler.row_admission import RowAdmission
from sim.vllm.scheduler.row_pass import RowPass
from sim.vllm.scheduler.scheduler import VllmScheduler, mode_of
from sim.vllm.scheduler.step_limits import PromptLimits


class RowScheduler(VllmScheduler[RowRequest]):
    """The scheduler of a vLLM v1 server with drafts, groups of layers or stages."""

    def __init__(self, config: VllmConfig, *, kv: BlockMemory) -> None:
        super().__init__(config, memory=kv)
        self.goes_row_by_row = self.keeps_tokens_in_flight = True
        self.fills_places = config.rules.fills_batch_queue
        self._drafting = drafting_of(config)
        self._admission = RowAdmission(config, memory=kv, waiting=self.waiting)
        self._rows: list[RowRequest] = []
        self._num_drafts: list[int] = []
        self._num_decided = 0

    # ---- requests ------------------------------------------------------------------------------

    def new_request(self, spec: RequestSpec, limit: int, outputs: OutputTokens) -> RowRequest:
        blocks = LookaheadBlocks if self._drafting.hash_lookahead else RequestBlocks
        return RowRequest(spec, blocks(spec.prompt, outputs), limit=limit)

    def abort(self, request: RowRequest, in_flight: Sequence[Launch[RowRequest]]) -> bool:
        """As `finish_requests`: it is gone at once, and its tokens in flight are lost."""
        if request.status is Status.WAITING:
            self.withdraw(request)
        else:
            self.give_back(request)
            self.admitted = [each for each in self.admitted if each is not request]
        return True

    def withdraw(self, request: RowRequest) -> None:
        super().withdraw(request)
        self._admission.deferred.discard(request)

    def give_back(self, request: RowRequest) -> None:
        self._blocks.release(request.kv, request.seq_len)
        self.free_slot(request)

    # ---- the step ------------------------------------------------------------------------------

    def decide(self, now_ns: int, in_flight: Launch[RowRequest] | None) -> Decision[RowRequest]:
        decision = self._decision = Decision()
        self.admitted = [r for r in self.admitted if r.status is Status.RUNNING]
        self._blocks.num_decisions += 1
        self._num_decided += 1
        self._decide(self._admission)
        # Results that come in now make blocks full after those of this decision.
        self._blocks.num_decisions += 1
        return decision

    def _visit_running(self, limits: PromptLimits) -> RowPass:
        steps = RowPass(
            self._config,
            drafting=self._drafting,
            kv=self._blocks,
            admitted=self.admitted,
            preempt=self._preempt,
            limits=limits,
            number=self._num_decided,
        )
        steps.run()
        self._rows = steps.rows
        self._num_drafts = [steps.num_drafts[row] for row in steps.rows]
        return steps

    @property
    def _num_left_waiting(self) -> int:
        return len(self.waiting) - len(self._admission.deferred)

    def _preempt(self, by: RowRequest, victim: RowRequest, was_scheduled: bool) -> None:
        """Free all blocks of a running request and put it back; it is computed again (rule 4)."""
        self.give_back(victim)
        victim.num_drafts = 0
        victim.num_stale, victim.num_placeholders = victim.num_in_flight, 0
        self._put_back(by, victim)

    def _launch(self, prefill: list[RowRequest]) -> RowLaunch[RowRequest] | None:
        rows, num_drafts = self._rows, self._num_drafts
        if not (prefill or rows):
            return None
        chunked = tuple([request for request in prefill if request.is_prefilling])
        for row, number in zip(rows, num_drafts, strict=True):
            self._note_launched(row, 1 + number, 1 + number)
        for request in prefill:
            samples = not request.is_prefilling
            self._note_launched(request, request.extend_len, samples * (1 + request.padding))
        return RowLaunch(
            mode_of(prefill, rows),
            prefill,
            rows,
            chunked,
            drafts=num_drafts,
            contexts=[row.seq_len for row in rows],
            padding=[request.padding for request in prefill],
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
        self._blocks.note_full(request.kv, num_cached, request.num_tokens + num_kept)

    # ---- state, for the engine and logs --------------------------------------------------------

    @property
    def repeats(self) -> bool:
        return False

    @property
    def chunked_rid(self) -> str | None:
        return next((request.rid for request in self.admitted if request.is_prefilling), None)

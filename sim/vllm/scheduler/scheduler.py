"""Decides the next batch as vLLM v1 does: running requests first, then waiting ones in order.

A step has one token budget and no phases. Each request has tokens, draft tokens among them, and
tokens whose KV is computed; a step lets the second number catch up with the first, as far as
budget and blocks go. This covers prompts in chunks, decoding, cached prefixes and drafts alike.
Rules by number: docs/explanation/vllm.md (vLLM 0.33.0, v1/core/sched/scheduler.py and
async_scheduler.py).

The parts of a decision:

    running_pass.py  the running requests get their tokens; some are preempted for it
    waiting_pass.py  waiting requests are admitted with what is left
    decode_rows.py   what is launched, and what results change: row by row, or for all at once
    connector.py     what servers of a deployment with prefill and decode servers do besides
"""

from collections.abc import Iterable, Sequence

from sim.core.request import RequestSpec, Status
from sim.core.tokens import TokenSequence
from sim.engine.page_pool import Span
from sim.engine.records import Decision, Launch
from sim.engine.request import OutputTokens
from sim.engine.scheduler import BaseScheduler
from sim.engine.server_config import DECODE, PREFILL
from sim.engine.store import Store
from sim.vllm.cache.kv_cache_coordinator import KVCacheCoordinator
from sim.vllm.config import VllmConfig
from sim.vllm.request import LookaheadBlocks, RequestBlocks, VllmDecision, VllmLaunch, VllmRequest
from sim.vllm.scheduler.connector import Connector
from sim.vllm.scheduler.decode_rows import LockstepRows, RowCounters
from sim.vllm.scheduler.row_runs import RowRuns
from sim.vllm.scheduler.running_pass import PrefillCadence, PromptLimits, RunningPass, largest_chunk
from sim.vllm.scheduler.step_limits import aligned_chunks_of, drafting_of
from sim.vllm.scheduler.waiting_pass import WaitingPass


class VllmScheduler(BaseScheduler[VllmRequest]):
    """The scheduler of a vLLM v1 server.

    Attributes:
        admitted: requests with blocks, in order of admission (vLLM's list `running`).
        connector: what the server does for KV that it shares, or keeps elsewhere.
        lockstep: the rows that decode in lockstep; None: the server goes row by row.
    """

    family = "vllm"

    def __init__(
        self, config: VllmConfig, *, kv: KVCacheCoordinator, connector: Connector, in_lockstep: bool
    ) -> None:
        super().__init__(kv)
        rules = config.rules
        self.aborts_before_results, self.goes_row_by_row = True, not in_lockstep
        self.front_end_limits = config.max_num_queued_reqs, config.max_num_queued_tokens
        self.admitted: list[VllmRequest] = []
        self.lockstep = LockstepRows(config, kv, self.running) if in_lockstep else None
        self._config, self._most_running = config, config.max_active
        self._blocks = kv
        self.connector, self.stores = connector, connector.stores
        self.keeps_tokens_in_flight = self.connector.keeps_token
        if config.role in (PREFILL, DECODE) or config.offload or not in_lockstep:
            self.fills_places = rules.fills_batch_queue
        self.looks_while_sending = rules.looks_while_sending
        drafting = drafting_of(config)
        self._hashes_ahead = bool(drafting.hash_lookahead)
        self._pass = RunningPass(
            config,
            memory=kv,
            drafting=drafting,
            batch=self.running,
            preempt=self._preempt,
            connector=connector,
        )
        self._admission = WaitingPass(
            config, memory=kv, connector=connector, lockstep=self.lockstep
        )
        self._results = RowCounters(config, kv, drafting)
        self._row_runs = RowRuns(config, kv, self._pass)
        self.repeats_rows = self._row_runs.goes_on
        self._aligned = aligned_chunks_of(config)
        self._cadence = PrefillCadence(config.prefill_schedule_interval)
        self._decision: VllmDecision = Decision()
        self._num_decided = self._num_entries = 0
        # A request has ended since the last decision.
        self._has_released = False

    # ---- requests ------------------------------------------------------------------------------

    def token_limit(self, prompt_len: int, max_new_tokens: int) -> int:
        """`max_new_tokens` as far as `max_model_len` allows; 0 or less: rejected (rule 1)."""
        limit = min(max_new_tokens, self._config.max_model_len - prompt_len)
        most = self.connector.most_output_tokens
        return limit if most is None else min(limit, most)

    def new_request(self, spec: RequestSpec, limit: int, outputs: OutputTokens) -> VllmRequest:
        blocks = LookaheadBlocks if self._hashes_ahead else RequestBlocks
        request = VllmRequest(spec, blocks(spec.prompt, outputs), limit=limit)
        self.connector.arrived(request)
        return request

    def enter(self, request: VllmRequest) -> None:
        self._num_entries += 1
        request.entry = self._num_entries
        self._admission.waiting.add(request)

    def share_stores(self, stores: Sequence[Store]) -> None:
        self.connector.share_stores(stores)
        self.stores = stores

    def withdraw(self, request: VllmRequest) -> None:
        self.connector.ended(request, is_aborted=False)
        self._admission.remove(request)

    def abort(self, request: VllmRequest, in_flight: Sequence[VllmLaunch]) -> bool:
        """As `finish_requests`: it is gone at once, and its tokens in flight are lost."""
        self.connector.ended(request, is_aborted=True)
        if request.status is not Status.WAITING:
            if self.lockstep is not None:
                self.lockstep.aborted(request, in_flight)
            self._release(request)
            self.admitted = [each for each in self.admitted if each is not request]
            return True
        self._admission.remove(request)
        if not request.seq_len:
            self.connector.forget(request)
        elif not self.connector.takes_blocks(request):
            self._free_blocks(request)
        request.seq_len = 0
        return True

    def give_back(self, request: VllmRequest) -> None:
        self.connector.ended(request, is_aborted=False)
        if self.lockstep is not None:
            self.lockstep.ended(request)
        self._release(request)

    def _release(self, request: VllmRequest) -> None:
        if self.connector.frees_skipped_first:
            num_processed = max(request.seq_len - request.num_in_flight, 0)
            self._blocks.remove_skipped_blocks(request.kv, num_processed)
        if not self.connector.takes_blocks(request):
            self._free_blocks(request)
        self.free_slot(request)
        self._has_released = True

    def let_kept_go(self) -> None:
        for rid in self.connector.unheard():
            self.transfer_ended(rid, is_lost=False)

    def _free_blocks(self, request: VllmRequest) -> None:
        fences = self.connector.fences
        if fences is not None and fences.is_in_flight(request):
            self._blocks.detach(request.kv, request.seq_len)
            fences.hold(request.kv, request.seq_len)
        else:
            self._blocks.free(request.kv, request.seq_len)
        # The watermark counts only while other requests run.
        self._admission.refused = None

    def in_order_of_end(self, finishing: list[VllmRequest]) -> list[VllmRequest]:
        """Requests free their blocks in order of admission (rule 8)."""
        return sorted(finishing, key=lambda request: request.admission)

    # ---- the step ------------------------------------------------------------------------------

    def decide(self, now_ns: int, in_flight: VllmLaunch | None) -> VllmDecision:
        decision = self._decision = Decision()
        self._num_decided += 1
        self._blocks.num_decisions += 1
        self._drop_ended(in_flight)
        self.connector.decides(has_in_flight=in_flight is not None)
        if not self._config.scheduler_reserve_full_isl:
            self._admission.refused = None
        decision.launch = self._schedule()
        self.connector.decided(decision, self.partner)
        if self.lockstep is None:
            # Results that come in now make blocks full after those of this decision.
            self._blocks.num_decisions += 1
        return decision

    def _drop_ended(self, in_flight: VllmLaunch | None) -> None:
        has_ended, self._has_released = self._has_released, False
        if has_ended:
            self.has_finished_rows = False
            self.admitted = [r for r in self.admitted if r.status is Status.RUNNING]
        if self.lockstep is not None:
            self.lockstep.begin(in_flight, has_ended=has_ended, joins=self.connector.decodes)

    def _schedule(self) -> Launch[VllmRequest] | None:
        """First the running requests, then the waiting ones with what is left (rule 2)."""
        cadence, num_requests = self._cadence, len(self.admitted) + self.num_waiting
        defers = cadence.interval > 1 and cadence.defers(
            any(not each.is_prefilling for each in self.admitted)
        )
        limits = PromptLimits(largest_chunk(self._config, num_requests), defers, self._aligned)
        steps, lockstep = self._pass, self.lockstep
        prefilling = [] if lockstep is None else lockstep.prefilling
        steps.run(self.admitted, prefilling, limits, self._num_decided)
        if lockstep is not None:
            lockstep.passed(steps)
        admitted: list[VllmRequest] = []
        if not self._decision.preempted:
            admitted = self._admission.run(self.admitted, steps, limits)
            self.num_slots_used += len(admitted)
            if not limits.are_deferred:
                self._cadence.admitted(self._num_left_waiting)
        prefill = [*steps.chunks, *admitted]
        if lockstep is not None:
            launch: Launch[VllmRequest] | None = lockstep.launch(prefill)
        else:
            launch = self._results.launch(steps, prefill, self._num_decided)
        self._cadence.decided(
            prefills=steps.has_prefilled or any(r.fill_len - r.prefix_len > 1 for r in admitted),
            num_steps=int(launch is not None),
        )
        return launch

    def _preempt(self, by: VllmRequest, victim: VllmRequest, was_scheduled: bool) -> None:
        """Free all blocks of a running request and put it back; it is computed again (rule 4)."""
        keeps_token = self.connector.keeps_token
        if self.lockstep is not None:
            self.lockstep.preempted(victim, was_scheduled=was_scheduled, keeps_token=keeps_token)
        self.connector.forget(victim)
        self._free_blocks(victim)
        self.free_slot(victim)
        victim.num_drafts = victim.num_placeholders = 0
        victim.num_stale = victim.num_in_flight
        victim.status = Status.WAITING
        victim.lose_prefix()
        victim.preemptions += 1
        self._admission.waiting.put_back(victim)
        self._decision.preempted.append((by, [victim]))

    @property
    def _num_left_waiting(self) -> int:
        """Requests that a step could have admitted, but left waiting."""
        return self.num_waiting - len(self._admission.deferred)

    def idle(self, now_ns: int, decision: VllmDecision) -> int | None:
        num_running = len(self.admitted)
        waits = self.connector.waits and (num_running > 0 or not self._admission.is_stuck)
        if not (waits or decision.preempted) and (num_running or self.num_waiting):
            self._admission.raise_if_stuck(num_running)
        return None

    # ---- results -------------------------------------------------------------------------------

    def prefill_computed(self, request: VllmRequest) -> None:
        if self.lockstep is not None:
            self._blocks.cache_decoded(request.kv, request.extend_end)

    def is_over(self, request: VllmRequest, num_tokens: int) -> bool:
        """Also of a request that was preempted since and whose KV was to be fetched."""
        if request.num_stale <= 0 or self.connector.keeps_token:
            return super().is_over(request, num_tokens)
        request.result_came(num_tokens)
        return True

    def chunk_done(self, request: VllmRequest, num_tokens: int) -> None:
        request.result_came(num_tokens)

    def prompt_done(
        self, request: VllmRequest, *, num_tokens: int, num_drafts: int, num_proposed: int
    ) -> None:
        self._results.came(
            request,
            num_tokens=num_tokens,
            num_drafts=num_drafts,
            num_sampled=1,
            num_kept=1,
            num_proposed=num_proposed,
        )

    def verified(
        self,
        request: VllmRequest,
        *,
        num_drafts: int,
        num_sampled: int,
        num_kept: int,
        num_proposed: int,
    ) -> None:
        self._results.came(
            request,
            num_tokens=1 + num_drafts,
            num_drafts=num_drafts,
            num_sampled=num_sampled,
            num_kept=num_kept,
            num_proposed=num_proposed,
        )

    # ---- requests that are shared with servers of another role ---------------------------------

    def hold(self, request: VllmRequest) -> None:
        """Its blocks stay, but its request slot is free."""
        self.connector.hold(request)
        num_processed = max(request.seq_len - request.num_in_flight, 0)
        self._blocks.remove_skipped_blocks(request.kv, num_processed)
        self.admitted = [each for each in self.admitted if each is not request]
        self._admission.refused = None

    def let_go(self, request: VllmRequest) -> None:
        self.connector.let_go(request)

    def lease_end_ns(self, computed_ns: int, lost_ns: int) -> int:
        return self.connector.lease_end_ns(computed_ns, lost_ns)

    def begin_result(self) -> None:
        fences = self.connector.fences
        for kv, num_tokens in fences.ended() if fences is not None else ():
            self._blocks.free(kv, num_tokens, together=True)
            self._admission.refused = None

    def keeps_blocks(self, rid: str) -> bool:
        loads = self.connector.loads
        return loads is not None and rid in loads.orphans

    def transfer_ended(self, rid: str, *, is_lost: bool) -> bool:
        loads = self.connector.loads
        if loads is None:
            return False
        orphan = loads.orphans.pop(rid, None)
        if orphan is not None:
            self._blocks.free(*orphan)
            self._admission.refused = None
            return False
        request = loads.loading.get(rid)
        if request is None:
            return False
        loads.ended[rid] = is_lost
        fails = is_lost and self._config.kv_load_failure_policy == "fail"
        return fails and self.abort(request, ())

    # ---- fast-forward --------------------------------------------------------------------------

    @property
    def repeats(self) -> bool:
        lockstep, rows = self.lockstep, self.running.requests
        if lockstep is None or lockstep.prefilling or lockstep.resting:
            return False
        return len(rows) >= len(self.admitted) and self._admits_none_beside(rows)

    def _admits_none_beside(self, rows: Sequence[VllmRequest]) -> bool:
        """Whether the next decisions admit no request, if these rows decode and none ends."""
        repeats = self._cadence.repeats(self._num_left_waiting) and self.connector.repeats(rows)
        return repeats and self._admission.admits_nothing_beside(len(rows))

    def decode_again(self, num_steps: int) -> list[float]:
        self._blocks.num_decisions += num_steps
        self._num_decided += num_steps
        self._cadence.decided(prefills=False, num_steps=num_steps)
        return super().decode_again(num_steps)

    def num_row_steps(self, rows: Sequence[VllmRequest], most: int) -> int:
        if rows != self.admitted or self._has_released or not self._admits_none_beside(rows):
            return 0
        return self._row_runs.num_affordable(rows, most)

    def decode_rows_again(self, rows: Sequence[VllmRequest], num_steps: int) -> list[int]:
        self._num_decided += num_steps
        self._cadence.decided(prefills=False, num_steps=num_steps)
        return self._row_runs.take(rows, num_steps)

    # ---- state, for the engine and logs --------------------------------------------------------

    @property
    def num_waiting(self) -> int:
        return len(self._admission)

    def waiting_requests(self) -> Iterable[VllmRequest]:
        return self._admission.all()

    def requests_elsewhere(self) -> Iterable[VllmRequest]:
        """Admitted requests that are not among `running`, or have their last token in flight."""
        return [*self.admitted, *self.connector.requests()]

    @property
    def num_running(self) -> int:
        return len(self.admitted)

    @property
    def batch_is_full(self) -> bool:
        return len(self.admitted) >= self._most_running

    @property
    def resting(self) -> list[VllmRequest]:
        return [] if self.lockstep is None else self.lockstep.resting

    @property
    def chunked_rid(self) -> str | None:
        if self.lockstep is not None:
            return next((request.rid for request in self.lockstep.prefilling), None)
        return next((request.rid for request in self.admitted if request.is_prefilling), None)

    def token_ids(self, request: VllmRequest, num_tokens: int) -> TokenSequence:
        return request.kv.token_ids(num_tokens)

    def spans(self, request: VllmRequest, num_tokens: int) -> list[Span]:
        return self._blocks.spans(request.kv, num_tokens)

"""The scheduler of servers on which all decode rows advance in lockstep, one token in each step.

`sim.vllm.scheduler.scheduler` says which servers these are. What is decided for all rows at once:
their blocks are promised to all of them together, and each gets its own when its table is read.
Blocks that decoding fills are hashed when another request looks for them, not when they are full.
"""

from collections.abc import Sequence

from sim.core.batch import ForwardMode
from sim.core.request import RequestSpec, Status
from sim.engine.finishing import leave_out_finishing
from sim.engine.request import OutputTokens
from sim.engine.scheduler import Decision, Launch
from sim.vllm.cache.manager import BlockManager
from sim.vllm.cache.request_blocks import RequestBlocks
from sim.vllm.config import VllmConfig
from sim.vllm.request import VllmDecision, VllmLaunch, VllmRequest
from sim.vllm.scheduler.block_fences import BlockFences
from sim.vllm.scheduler.lockstep_admission import LockstepAdmission
from sim.vllm.scheduler.lockstep_pass import LockstepPass
from sim.vllm.scheduler.scheduler import VllmScheduler, mode_of
from sim.vllm.scheduler.step_limits import PromptLimits


class LockstepScheduler(VllmScheduler[VllmRequest]):
    """The scheduler of a vLLM v1 server without drafts, groups of layers and stages.

    The admitted requests that decode are rows of the running batch, in order of admission.
    """

    def __init__(self, config: VllmConfig, *, kv: BlockManager) -> None:
        super().__init__(config, memory=kv)
        self._kv = kv
        self._prefilling: list[VllmRequest] = []
        self._resting: list[VllmRequest] = []
        self._resumed: list[VllmRequest] = []
        self._in_flight: VllmLaunch | None = None
        self._last: VllmLaunch | None = None
        self._admission = self._build_admission()
        self._has_released = False
        # Under async scheduling on a decode server.
        self._fences: BlockFences | None = None
        # A victim gets its token in flight (rule 13).
        self._keeps_token = True

    def _build_admission(self) -> LockstepAdmission:
        return LockstepAdmission(
            self._config, kv=self._kv, waiting=self.waiting, catch_up=self._catch_up
        )

    # ---- requests ------------------------------------------------------------------------------

    def new_request(self, spec: RequestSpec, limit: int, outputs: OutputTokens) -> VllmRequest:
        kv = RequestBlocks(spec.prompt, outputs)
        return VllmRequest(spec, kv, limit=limit)

    def abort(self, request: VllmRequest, in_flight: Sequence[VllmLaunch]) -> bool:
        """As `finish_requests`: it is gone at once, and its token in flight is lost."""
        if request.status is Status.WAITING:
            self.withdraw(request)
            if self._admission.refused is request:
                self._admission.refused = None
            return True
        if request.in_running_batch:
            self.running.remove([request])
        # Under async scheduling the token of a row in flight is cached a step later (rule 9).
        is_ahead = self._config.async_scheduling and any(
            request in flight.decode for flight in in_flight
        )
        num_tokens = min(request.seq_len - is_ahead, request.num_tokens)
        was_scheduled = self._last is not None and request in self._last.decode
        self._kv.cache_full_blocks(request.kv, num_tokens, decisions_ago=int(not was_scheduled))
        self._release(request)
        self.admitted = [each for each in self.admitted if each is not request]
        self._prefilling = [each for each in self._prefilling if each is not request]
        self._resting = [each for each in self._resting if each is not request]
        return True

    def prefill_computed(self, request: VllmRequest) -> None:
        self._kv.cache_full_blocks(request.kv, request.extend_end)

    def give_back(self, request: VllmRequest) -> None:
        """The last token is never cached, even if a step in flight has computed it (rule 9)."""
        self._kv.cache_full_blocks(request.kv, min(request.seq_len, request.num_tokens - 1))
        self._release(request)

    def _release(self, request: VllmRequest) -> None:
        self._free_blocks(request)
        self.free_slot(request)
        self._has_released = True
        # The watermark counts only while other requests run.
        self._admission.refused = None

    def _free_blocks(self, request: VllmRequest) -> None:
        self._kv.release(request.kv, request.seq_len)
        self._admission.refused = None

    # ---- the step ------------------------------------------------------------------------------

    def decide(self, now_ns: int, in_flight: VllmLaunch | None) -> VllmDecision:
        decision: VllmDecision = Decision()
        self._decision = decision
        self._kv.num_decisions += 1
        self._in_flight = in_flight
        self._drop_finished()
        self._join_rows()
        if self._config.rules.leaves_out_finishing:
            leave_out_finishing(in_flight, self.running)
        else:
            leave_out_finishing(in_flight, self.running, only=self._reaches_model_len)
        if not self._config.scheduler_reserve_full_isl:
            self._admission.refused = None
        self._decide(self._admission)
        self._last = decision.launch
        return decision

    def _visit_running(self, limits: PromptLimits) -> LockstepPass:
        steps = LockstepPass(
            self._config,
            kv=self._kv,
            running=self.running,
            admitted=self.admitted,
            prefilling=self._prefilling,
            preempt=self._preempt,
            limits=limits,
        )
        steps.fences = self._fences
        steps.run()
        self._let_rest(steps.rows_without_token)
        if self.running.requests:
            self.running.begin_steps()
        return steps

    def _drop_finished(self) -> None:
        if self._has_released:
            self._has_released = self.has_finished_rows = False
            self.admitted = [r for r in self.admitted if r.status is Status.RUNNING]
            self.running.remove(
                [r for r in self.running.requests if r.status is not Status.RUNNING]
            )

    def _reaches_model_len(self, request: VllmRequest) -> bool:
        return request.prompt_len + request.max_new_tokens >= self._config.max_model_len

    def _join_rows(self) -> None:
        """Add rows to the running batch: requests with a finished prompt, and rows that rested."""
        last, running = self._last, self.running
        joining = [] if last is None else [r for r in last.prefill if r not in last.chunked]
        joining = [r for r in joining if r.status is Status.RUNNING]
        back, self._resting = [r for r in self._resting if r.status is Status.RUNNING], []
        self._resumed = back
        if back:
            running.append(back, num_missed_steps=int(self._decode_in_flight))
        if joining:
            running.append(joining)
        if (back or joining) and not _are_in_order(running.requests):
            running.reorder(sorted(running.requests, key=lambda request: request.admission))

    @property
    def _decode_in_flight(self) -> bool:
        """The launch in flight has decode rows."""
        return self._in_flight is not None and self._in_flight.mode is not ForwardMode.EXTEND

    def _let_rest(self, rows: list[VllmRequest]) -> None:
        """Leave rows without a token out of the launch. Their tokens in flight still count."""
        self._resting = rows
        self.running.remove(rows)
        for row in rows:
            self._cache_decoded(row, was_scheduled=False)
        if self._in_flight is not None and self._decode_in_flight:
            for row in rows:
                row.num_generated += row not in self._in_flight.prefill

    def _preempt(self, by: VllmRequest, victim: VllmRequest, was_scheduled: bool) -> None:
        """Free all blocks of a running request and put it back; it is computed again (rule 4)."""
        if victim.in_running_batch:
            self.running.remove([victim])
            victim.seq_len += was_scheduled
            if self._decode_in_flight and victim in self._resumed:
                victim.num_generated += 1  # `_join_rows` did not count the step in flight
        self._cache_decoded(victim, was_scheduled=was_scheduled)
        self._release(victim)
        if self._in_flight is not None and self._keeps_token:
            _keep_token(victim, self._in_flight)
        self._put_back(by, victim)

    def _cache_decoded(self, request: VllmRequest, *, was_scheduled: bool) -> None:
        """Let other requests find the full blocks that vLLM would have cached by now (rule 9).

        A decode row in flight computes the KV of one token. vLLM caches it when the row's sampled
        token is known, or when the row is scheduled again. If a row leaves the batch before that,
        this token is not cached.
        """
        launch = self._in_flight
        num_known = request.num_tokens
        if request.in_running_batch and self._decode_in_flight and request in self._resumed:
            num_known += 1  # `_join_rows` did not count the step in flight
        num_tokens = min(request.seq_len, num_known)
        if launch is not None and not was_scheduled and request not in launch.prefill:
            num_tokens -= request in launch.decode
        self._kv.cache_full_blocks(request.kv, num_tokens, decisions_ago=int(not was_scheduled))

    def _catch_up(self, request: VllmRequest) -> None:
        """Called when another request looks for blocks that this one may have filled."""
        self._cache_decoded(request, was_scheduled=request.in_running_batch)

    # ---- the launch ----------------------------------------------------------------------------

    def _launch(self, prefill: list[VllmRequest]) -> VllmLaunch | None:
        rows = self.running.requests
        # In order of admission: newly admitted requests come last in `prefill`.
        candidates = dict.fromkeys([*self._prefilling, *prefill])
        self._prefilling = [
            request
            for request in candidates
            if request.is_prefilling and request.status is Status.RUNNING
        ]
        if not prefill and not rows:
            return None
        chunked = tuple([request for request in prefill if request.is_prefilling])
        launch = Launch(mode_of(prefill, rows), prefill, rows, chunked)
        launch.resting = self._resting
        launch.resumed = [row for row in self._resumed if row.in_running_batch]
        return launch

    # ---- fast-forward --------------------------------------------------------------------------

    @property
    def repeats(self) -> bool:
        num_rows = len(self.running.requests)
        if self._prefilling or self._resting or num_rows < len(self.admitted):
            return False
        config = self._config
        if not self._cadence.repeats(self._num_left_waiting):
            return False
        takes_no_more = num_rows >= config.max_active or num_rows >= config.max_num_batched_tokens
        return takes_no_more or self._admits_nothing

    @property
    def _admits_nothing(self) -> bool:
        """Whether no waiting request can be admitted before a request frees blocks."""
        return not len(self.waiting) or self.waiting.next() is self._admission.refused

    def decode_again(self, num_steps: int) -> list[float]:
        self._kv.num_decisions += num_steps
        self._cadence.decided(prefills=False, num_steps=num_steps)
        return super().decode_again(num_steps)

    # ---- state, for the engine and logs --------------------------------------------------------

    @property
    def resting(self) -> list[VllmRequest]:
        return self._resting

    @property
    def chunked_rid(self) -> str | None:
        return self._prefilling[0].rid if self._prefilling else None


def _keep_token(victim: VllmRequest, launch: VllmLaunch) -> None:
    """A request that is put back keeps the token of this launch, if it has one in it."""
    sampled = victim in launch.prefill and victim not in launch.chunked
    if sampled or victim in launch.decode:
        launch.put_back.append(victim)
        launch.leaving = [request for request in launch.leaving if request is not victim]


def _are_in_order(rows: list[VllmRequest]) -> bool:
    """Whether the rows are in order of admission, which they nearly always are."""
    before = 0
    for row in rows:
        if row.admission < before:
            return False
        before = row.admission
    return True

"""Decode steps: their rows, room for them, and decode rows beside a prefill.

Rules 11, 16 and 18 of docs/explanation/sglang.md (SGLang 0.5.23's update_running_batch).
"""

from collections.abc import Sequence

from sim.core.batch import ForwardMode
from sim.core.request import Status
from sim.engine.finishing import leave_out_finishing
from sim.engine.scheduler import Decision, Launch
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.config import SchedulerConfig
from sim.sglang.policies.policy import SchedulePolicy
from sim.sglang.request import SglangDecision, SglangLaunch, SglangRequest
from sim.sglang.scheduler.batching import DecodeTurns
from sim.sglang.scheduler.holdings import SglangHoldings
from sim.sglang.scheduler.retraction import retract
from sim.sglang.scheduler.token_ratio import NewTokenRatio
from sim.sglang.scheduler.waiting_queue import WaitingQueue


class SglangDecoding(SglangHoldings):
    """The part of the scheduler that makes decode steps of the running batch.

    Attributes:
        waiting: the waiting queue; the chunked request is not in it.
        turns: which running requests decode in a step.
        ratio: the new-token ratio.
        is_full: SGLang's `batch_is_full` flag (rule 7).
        kept_extend_tokens: prefill tokens of the batch from which the running batch grew. SGLang's
            batch object keeps this number and adds it to the processed tokens at every decode step;
            policy hrrn uses that counter, so it is done here too.
    """

    def __init__(self, config: SchedulerConfig, kv: KVCacheManager, policy: SchedulePolicy) -> None:
        super().__init__(config, kv)
        self.waiting = WaitingQueue(config, kv, policy)
        self.turns = DecodeTurns(self.running, config.decode_max_requests)
        self.ratio = NewTokenRatio(config)
        self.is_full = False
        self.kept_extend_tokens = 0
        self._made_room = False
        self._decision: SglangDecision = Decision()
        self._now_ns = 0
        limits = (config.max_queued_requests, config.waiting_timeout_ns, config.running_timeout_ns)
        self.has_limits = any(limit is not None for limit in limits)

    @property
    def resting(self) -> list[SglangRequest]:
        return self.turns.resting

    @property
    def batch_is_full(self) -> bool:
        return self.is_full

    # ---- the queue -------------------------------------------------------------------------------

    def enter(self, request: SglangRequest) -> None:
        """Put a request into the queue; if too many wait, one of them is dropped (rule 21)."""
        most = self._config.max_queued_requests
        if most is not None and len(self.waiting) >= most:
            least = self._least_important(request)
            self.dropped.append(least)
            if least is request:
                return
            self.waiting.remove(least)
        request.entered_ns = self._now_ns
        self.waiting.enter(request)

    def _least_important(self, entering: SglangRequest) -> SglangRequest:
        """The request to drop: with priorities a waiting one, if the entering one is better."""
        if self._config.enable_priority_scheduling and self.waiting.requests:
            sign = self._config.priority_sign
            least = max(self.waiting.requests, key=lambda r: (sign * r.priority, r.entry))
            if sign * entering.priority < sign * least.priority:
                return least
        return entering

    def _note_dropped(self) -> None:
        """Requests that the decision has dropped count as aborted by it."""
        for request in self.take_dropped():
            request.status = Status.ABORTED
            self._decision.aborted.append(request)

    def _mix_in_decode(self, launch: SglangLaunch, in_flight: SglangLaunch | None) -> None:
        """Add the decode rows to the batch if their next tokens fit (rule 16)."""
        running = self.running
        self._ended = []
        if self._rules.leaves_out_finishing and leave_out_finishing(in_flight, running):
            self.is_full = False
        if not running.requests or not self._kv.can_decode(self._num_new_pages):
            return
        self._begin_decode()
        launch.mode = ForwardMode.MIXED
        launch.decode = running.requests
        self._kv.note_mixed(running.requests)
        launch.num_new_tokens += len(running)
        # SGLang sets this for every row of a mixed batch. Preemption reads it if the row is later
        # put back into the queue and waits for a slot.
        for request in running.requests:
            request.fill_len = request.num_tokens

    def _decode(self, in_flight: SglangLaunch | None) -> SglangLaunch | None:
        running = self.running
        if self._ended:
            self._ended = []
            self.is_full = False
            self._made_room = True
        if not running.requests:
            return None
        num_before = len(running.requests)
        finishing: Sequence[SglangRequest] = ()
        if self._rules.leaves_out_finishing:
            finishing = leave_out_finishing(in_flight, running)
        if not running.requests:
            self.is_full = False
            return None
        self.turns.rest()
        if self._kv.can_decode(self._num_new_pages):
            self.ratio.decay()
        elif finishing:
            # The result in flight will free the pages of finishing requests: wait for it (rule 18).
            self.is_full = False
            return None
        else:
            self.turns.gather()
            self._retract()
            self.turns.rest()
        if self.num_running < num_before:
            self.is_full = False
        if not running.requests:
            return None
        self._begin_decode()
        self.waiting.processed_tokens += self.kept_extend_tokens
        launch = self._new_launch(ForwardMode.DECODE, [], running.requests)
        if self._config.decode_max_requests is not None:
            launch.resting, launch.resumed = self.turns.resting, running.requests
        return launch

    @property
    def _num_new_pages(self) -> int:
        """New pages that the next decode step of all rows needs."""
        return self.running.num_new_pages

    def _new_pages_of(self, rows: list[SglangRequest]) -> int:
        """New pages that a decode step of these rows needs."""
        return sum([request.seq_len % self._kv.page_size == 0 for request in rows])

    def _new_launch(
        self,
        mode: ForwardMode,
        prefill: list[SglangRequest],
        decode: list[SglangRequest],
        chunked: tuple[SglangRequest, ...] = (),
    ) -> SglangLaunch:
        return Launch(mode, prefill, decode, chunked)

    def _begin_decode(self) -> None:
        """Allocate the KV of a decode step of all rows."""
        running = self.running
        self._kv.begin_decode(running.requests)
        self._kv.decode(len(running.requests), running.num_new_pages)
        running.begin_steps()

    def _num_known_outputs(self, request: SglangRequest) -> int:
        """The output tokens of a running row that are known."""
        return request.num_generated

    def _keeps_kv(self, request: SglangRequest) -> bool:
        """Whether a running request that is to be retracted can come back later."""
        return True

    def _retract(self) -> None:
        retracted, aborted = retract(
            self._config,
            self._kv,
            self.running,
            self._release_for_later,
            self._new_pages_of,
            self._num_known_outputs,
            self._keeps_kv,
        )
        self.ratio.after_retraction(
            (self._num_known_outputs(r), r.max_new_tokens) for r in self.running.requests
        )
        self._decision.retracted = retracted
        self._decision.aborted += aborted
        for request in aborted:
            request.status = Status.ABORTED
        for request in retracted:
            request.retractions += 1
            self.enter(request)
        self._note_dropped()

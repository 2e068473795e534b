"""SGLang's scheduler: the loop, and the parts that it asks.

Rules 7, 11, 13, 16, 17 and 18 of docs/explanation/sglang.md (SGLang 0.5.23's
`get_next_batch_to_run`). A decision goes through these parts in this order:

    queues     roles/                  which requests wait here: by the role of the server
    batch      server.py (MicroBatch)  rows that join the running batch, or leave it
    interval   DecodeInterval, here    whether the running batch decodes first
    prefill    prefill/manager.py      a batch of waiting requests, if they fit
    decode     decode.py               else a step of the running batch
    steps      RowSteps, or            what such a step allocates, and its launch
               draft_steps.py

A part for which a server has no use is missing, or does nothing.
"""

from collections.abc import Iterable, Sequence

from sim.core.arrays import Int64
from sim.core.batch import ForwardMode
from sim.engine.decode_run import DraftRun
from sim.engine.records import Decision
from sim.engine.scheduler import RankTalk
from sim.engine.server_config import BOTH, DECODE, PREFILL
from sim.engine.store import Store
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.config import SchedulerConfig
from sim.sglang.policies.policy import SchedulePolicy
from sim.sglang.request import SglangDecision, SglangLaunch, SglangRequest
from sim.sglang.scheduler.decode import DecodeManager
from sim.sglang.scheduler.kept import KeptPrefixes
from sim.sglang.scheduler.prefill.manager import PrefillManager
from sim.sglang.scheduler.roles.decode_server import DecodeQueues
from sim.sglang.scheduler.roles.prefill_server import PrefillQueues
from sim.sglang.scheduler.server import MicroBatch, RowSteps, SglangServer
from sim.sglang.scheduler.waiting.queue import Queues, WaitingQueue, build_limits


class DecodeInterval:
    """How many decode steps follow a prefill step before the next prefill.

    Rule 20; SGLang 0.5.23: `_should_defer_prefill` in managers/scheduler.py. `decode_first` is an
    interval of one step that mixed steps do not begin. Servers that only prefill, or only decode,
    have none.

    Attributes:
        deferred: the last decision made no pass over the queue because of this.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        # Fewer rows never hold a prefill back.
        self._min_rows = 1
        # Whether a step that mixes prefill and decode rows counts as a prefill step.
        self._after_mixed = False
        self._num_steps = 0
        if config.role == BOTH and config.decode_first:
            self._num_steps = 1
        elif config.role == BOTH:
            self._num_steps = config.prefill_decode_interval
            self._min_rows = config.prefill_decode_interval_min_bs
            self._after_mixed = True
        self._num_left = 0
        self.deferred = False

    @property
    def is_over(self) -> bool:
        """The next decision makes a pass, as this one did."""
        return not (self.deferred or self._num_left)

    def defers(self, batch: MicroBatch) -> bool:
        """Whether this decision makes no pass over the queue."""
        self.deferred = self._num_left > 0 and batch.num_rows >= self._min_rows
        self._num_left = self._num_left - 1 if self.deferred else 0
        return self.deferred

    def launched(self, mode: ForwardMode) -> None:
        """A step of this mode was launched, here or on another rank of the group."""
        if not self._num_steps:
            return
        counts = mode is ForwardMode.EXTEND or (self._after_mixed and mode is ForwardMode.MIXED)
        if counts:
            self._num_left = self._num_steps

    def reset(self) -> None:
        """The server has nothing to do: it passes the decisions that are left at once."""
        self._num_left = 0


class SglangScheduler(SglangServer):
    """The scheduler of an SGLang server.

    Attributes:
        queues: the waiting queue, and what is before and behind it, by the role of the server.
        interval: whether running requests decode before the next prefill.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        *,
        kv: KVCacheManager,
        policy: SchedulePolicy,
        steps: RowSteps | None = None,
    ) -> None:
        """`steps`: what a decode step gives a row; None: one token."""
        super().__init__(config, kv, RowSteps(kv) if steps is None else steps)
        if policy.keeper is not None and kv.cache.enabled:
            self.kept = KeptPrefixes(kv.cache, policy.keeper)
        self.waiting = WaitingQueue(config, kv, policy, self.kept)
        self.limits = build_limits(config, self.waiting)
        self.has_limits = self.limits is not None or self.storage is not None
        self.queues = Queues(self, self.waiting, self.limits)
        if config.role == PREFILL:
            self.queues = PrefillQueues(self, self.waiting)
        elif config.role == DECODE:
            self.queues = DecodeQueues(self, self.waiting, policy)
        self.interval = DecodeInterval(config)
        self.goes_row_by_row = not self.steps.in_lockstep
        # Windows and states follow each row's results one by one.
        has_pools = any(part.pool is not None for part in kv.parts)
        self.repeats_drafts = self.goes_row_by_row and not has_pools
        self.decode = DecodeManager(self, self.queues)
        self.prefill = PrefillManager(self, self.waiting, policy, self.decode)
        self._decodes_if_none_prefills = False
        self._in_flight: SglangLaunch | None = None

    def share_stores(self, stores: Sequence[Store]) -> None:
        if self.storage is not None:
            self.storage.use(stores[0])
            self.stores = stores

    # ---- requests ------------------------------------------------------------------------------

    def token_limit(self, prompt_len: int, max_new_tokens: int) -> int:
        return self.queues.token_limit(super().token_limit(prompt_len, max_new_tokens))

    def takes(self, prompt_len: int, max_new_tokens: int) -> bool:
        limit = self.token_limit(prompt_len, max_new_tokens)
        return self._takes(prompt_len, limit) and self.queues.ever_fits(prompt_len, limit)

    def enter(self, request: SglangRequest) -> None:
        self.queues.enter(request)
        if self.kept is not None and request.spec.session in self.kept.sessions:
            self._look_again()

    def _look_again(self) -> None:
        """What did not fit may fit now."""
        for batch in self.batches:
            batch.is_full = False

    def abort(self, request: SglangRequest, in_flight: Sequence[SglangLaunch]) -> bool:
        """A waiting request is gone at once, a chunked one with the next decision (rule 21).

        Any other ends with its next result.
        """
        self.steps.give_up(request)
        if request is self.prefill.chunked and self.queues.drops_chunks:
            self.prefill.drops_chunk = True
            return False
        return self.queues.abort(request)

    def free_slot(self, request: SglangRequest) -> None:
        super().free_slot(request)
        self.queues.slot_freed(request)

    def look_for_late(self, now_ns: int) -> Sequence[SglangRequest]:
        self.now_ns = now_ns
        if self.storage is not None:
            self.storage.receive(now_ns)
        return () if self.limits is None else self.limits.late(now_ns, self._live_requests())

    def _live_requests(self) -> list[SglangRequest]:
        """The requests of all running batches and last launches that have not ended."""
        requests = self.batch.live_requests
        for other in self.other_batches:
            requests += other.live_requests
        return requests

    @property
    def num_waiting(self) -> int:
        return self.queues.num_waiting

    def waiting_requests(self) -> Iterable[SglangRequest]:
        return self.queues.waiting_requests

    def requests_elsewhere(self) -> Iterable[SglangRequest]:
        """Also rows of the last prefill, which decode next, and requests that rest."""
        requests = [*self.batch.prefilled, *self.batch.turns.resting, *self.queues.elsewhere]
        if self.prefill.chunked is not None:
            requests.append(self.prefill.chunked)
        for other in self.other_batches:
            requests += other.live_requests
        return requests

    def finished(self, request: SglangRequest, now_ns: int) -> None:
        if self.kept is not None:
            self.kept.finished(request, now_ns)

    def let_kept_go(self) -> None:
        while self.makes_room():
            pass

    def discard(self, request: SglangRequest) -> None:
        """`_retire_aborted_prefill_result`: nothing of it is cached."""
        self.release(request)

    # ---- the step ------------------------------------------------------------------------------

    def decide(self, now_ns: int, in_flight: SglangLaunch | None) -> SglangDecision:
        """SGLang's `get_next_batch_to_run`."""
        decision: SglangDecision = Decision()
        self.decision = decision
        self.has_dropped_rows = False
        self.now_ns = now_ns
        if self.kept is not None and self.kept.expire(now_ns, self.queues.waiting_requests):
            self._look_again()
        if self.takes_turns:
            in_flight = None  # No row of this micro-batch is in flight: their tokens are known.
        queues = self.queues
        queues.begin_decision(1 if in_flight is not None and self.steps.in_lockstep else 0)
        launch = None
        if queues.prefills:
            self._begin_prefill(now_ns)
            if not self.interval.defers(self.batch):
                launch = self.prefill.next_launch(now_ns, in_flight)
                if launch is None and self.prefill.static is not None:
                    self.prefill.static.note_decode()
        if launch is None and self._decodes_if_none_prefills:
            self._in_flight, self.awaits_ranks = in_flight, True
            return decision
        if launch is None and queues.decodes:
            launch = self.decode.next_launch(in_flight)
        return self._end_decision(launch)

    def go_on(self, *, others_prefill: bool) -> SglangDecision:
        """No rank decodes with drafts while another one prefills."""
        self.awaits_ranks = False
        return self._end_decision(
            None if others_prefill else self.decode.next_launch(self._in_flight)
        )

    def _end_decision(self, launch: SglangLaunch | None) -> SglangDecision:
        decision = self.decision
        if launch is not None:
            self.interval.launched(launch.mode)
        decision.waited_ns = self.kv.end_decision()
        self.batch.last = decision.launch = launch
        self.queues.end_decision()
        return decision

    def _begin_prefill(self, now_ns: int) -> None:
        """Before a prefill pass: prompts that are computed join the running batch."""
        batch, prefill = self.batch, self.prefill
        if prefill.drops_chunk:
            prefill.drop_chunk()
        if self.storage is not None:
            self.storage.receive(now_ns)
        self.kv.begin_decision(now_ns, self.device_free_ns)
        if self.storage is not None:
            for request, known_end in self.storage.take_due(self.waiting.requests):
                self.look_up(request, known_end)
        batch.turns.gather()
        if prefill.checkpoint_chunk(in_every_pass=not self.queues.decodes):
            self.queues.chunk_cached()
        if self.queues.decodes:
            batch.merge_last_prefill(prefill.chunked)
            if self.drop_finished():
                batch.is_full = False

    def join_ranks(self, rank: int, talk: RankTalk) -> None:
        self._decodes_if_none_prefills = (
            not self.steps.in_lockstep and self.queues.prefills and self.queues.decodes
        )
        self.prefill.join_ranks(rank, talk)

    def note_group(self, modes: Sequence[ForwardMode]) -> None:
        for mode in modes:
            self.interval.launched(mode)

    def verified(
        self,
        request: SglangRequest,
        *,
        num_drafts: int,
        num_sampled: int,
        num_kept: int,
        num_proposed: int,
    ) -> None:
        self.steps.verified(request, num_drafts, num_sampled)

    # ---- idle, and many steps at once ------------------------------------------------------------

    def idle(self, now_ns: int, decision: SglangDecision) -> int | None:
        """A micro-batch without work is no reason to wait if another has some."""
        if self.running.requests or self.others_run:
            return None
        self.queues.begin_idle()
        deferred = self.interval.deferred or self.prefill.delays
        if not deferred and (change_ns := self.kv.next_change_ns(now_ns)) is not None:
            # What was taken out has left room for what waits: there is another pass at once.
            waits = self.prefill.chunked is not None or self.waiting.requests
            if self.limits is not None and self.storage is not None:
                change_ns = min(change_ns, max(self.limits.next_late_ns(()), now_ns))
            if not (waits or self.queues.waits_for_partner or self.kv.is_copying):
                self.decode.ratio.reset()
            return now_ns if waits and decision.takes_out else change_ns
        if self.queues.waits_for_partner:
            return None
        if self.prefill.chunked is None and not self.waiting.requests:
            self.interval.reset()
            if not self.kv.is_copying:
                # SGLang is not idle (`is_fully_idle`) while copies are under way.
                self.decode.ratio.reset()
            return self.kv.next_change_ns(now_ns)
        if deferred and self.prefill.chunked is None:
            return None
        return self.prefill.idle(now_ns, decision, may_go_on=deferred)

    @property
    def next_aging_ns(self) -> int:
        next_ns = self.waiting.next_aging_ns
        if (change_ns := self.kv.next_change_ns(0)) is not None:
            next_ns = min(next_ns, change_ns)
        if self.limits is not None:
            next_ns = min(next_ns, self.limits.next_late_ns(self._live_requests()))
        if self.kept is not None:
            next_ns = min(next_ns, self.kept.next_ns)
        return next_ns

    @property
    def repeats(self) -> bool:
        if self.batch.turns.resting or not self.interval.is_over:
            return False
        return self.prefill.stays_out and self.queues.repeats

    def decode_again(self, num_steps: int) -> list[float]:
        self.waiting.processed_tokens += num_steps * self.batch.kept_extend_tokens
        return self.decode.ratio.decay_steps(num_steps)

    def decoded_again(self, num_steps: int) -> None:
        overlaps = self.config.overlaps
        self.kv.decoded_again(self.running.requests, num_steps, overlaps=overlaps)
        self.queues.decoded_again(num_steps)

    def draft_run(self, rows: Sequence[SglangRequest], outputs: Int64) -> DraftRun:
        return self.steps.run(rows, outputs, overlaps=self.config.overlaps)

    def drafts_again(self, rows: Sequence[SglangRequest], run: DraftRun) -> Int64:
        return self.steps.take(rows, run)

    # ---- state, for logs -----------------------------------------------------------------------

    @property
    def resting(self) -> list[SglangRequest]:
        return self.batch.turns.resting

    @property
    def batch_is_full(self) -> bool:
        return self.batch.is_full

    @property
    def num_running(self) -> int:
        return self.batch.num_running

    def num_running_shown(self, *, is_mixed: bool) -> int:
        """A running batch does not count after a mixed launch, as in SGLang."""
        shown = 0 if is_mixed else self.batch.num_running
        for other in self.other_batches:
            if other.last is None or other.last.mode is not ForwardMode.MIXED:
                shown += other.num_running
        return shown

    @property
    def new_token_ratio(self) -> float:
        return self.decode.ratio.current

    @property
    def chunked_rid(self) -> str | None:
        chunked = self.prefill.chunked
        return None if chunked is None else chunked.rid

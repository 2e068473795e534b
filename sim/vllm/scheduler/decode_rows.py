"""The rows that decode: what a step launches of them, and what its result changes.

`LockstepRows`: without drafts, groups of layers and stages, all rows that decode are alike: one
token each in each step. They are then kept as one running batch, in order of admission, whose
counters stand for those of each row. Their blocks are reserved for all of them together, and each
gets its own when its table is read. Blocks that decoding fills are hashed when another request
looks for them, not when they are full. Many equal steps are taken at once
(`sim.engine.core`). What is decided is the same as row by row; `VllmConfig.in_lockstep`
turns lockstep off, and tests/properties/test_vllm_lockstep.py compares.

`RowCounters`: row by row, a row may compute several tokens: its last known one and its draft
tokens. Results may come in several steps later. Under async scheduling a step is decided before it
is known how many drafts of the step before are accepted. It counts on all of them, and what was
rejected is taken back later (rule 15 of docs/explanation/vllm.md).

vLLM 0.19.0 and 0.33.0: `_update_after_schedule` and `update_from_output` of `Scheduler`
(v1/core/sched/scheduler.py), and `AsyncScheduler` (async_scheduler.py).
"""

from collections.abc import Sequence

from sim.core.batch import ForwardMode
from sim.core.request import Status
from sim.engine.records import Launch, leave_out_finishing
from sim.engine.rows import RowLaunch
from sim.vllm.cache.kv_cache_coordinator import KVCacheCoordinator
from sim.vllm.config import VllmConfig
from sim.vllm.request import VllmBatch, VllmLaunch, VllmRequest
from sim.vllm.scheduler.running_pass import RunningPass
from sim.vllm.scheduler.step_limits import Drafting


class LockstepRows:
    """The rows of one server that decode in lockstep.

    Attributes:
        prefilling: running requests with more chunks to come, in order of admission.
        resting: rows that get no token in the latest step, because others went first.
    """

    def __init__(self, config: VllmConfig, memory: KVCacheCoordinator, batch: VllmBatch) -> None:
        self.prefilling: list[VllmRequest] = []
        self.resting: list[VllmRequest] = []
        self._config = config
        self._leaves_out_finishing = config.rules.leaves_out_finishing
        self._memory = memory
        self._batch = batch
        self._resumed: list[VllmRequest] = []
        self._in_flight: VllmLaunch | None = None
        self._last: VllmLaunch | None = None

    # ---- before a pass -------------------------------------------------------------------------

    def begin(self, in_flight: VllmLaunch | None, *, has_ended: bool, joins: bool) -> None:
        """Bring the batch up to date.

        `in_flight` is the launch whose result is not known yet. `has_ended`: requests have ended
        since the last decision. `joins`: requests decode when their prompts are computed.
        """
        batch, self._in_flight = self._batch, in_flight
        if has_ended:
            batch.remove([row for row in batch.requests if row.status is not Status.RUNNING])
        if joins:
            self._join()
        only = None if self._leaves_out_finishing else self._reaches_model_len
        leave_out_finishing(in_flight, batch, only=only)

    def _reaches_model_len(self, request: VllmRequest) -> bool:
        return request.prompt_len + request.max_new_tokens >= self._config.max_model_len

    def _join(self) -> None:
        """Add rows to the batch: requests with a finished prompt, and rows that rested."""
        last, batch = self._last, self._batch
        joining = [] if last is None else [r for r in last.prefill if r not in last.chunked]
        joining = [r for r in joining if r.status is Status.RUNNING]
        back, self.resting = [r for r in self.resting if r.status is Status.RUNNING], []
        self._resumed = back
        if back:
            batch.append(back, num_missed_steps=int(self._decode_in_flight))
        if joining:
            batch.append(joining)
        if (back or joining) and not _are_in_order(batch.requests):
            batch.reorder(sorted(batch.requests, key=lambda request: request.admission))

    @property
    def _decode_in_flight(self) -> bool:
        return self._in_flight is not None and self._in_flight.mode is not ForwardMode.EXTEND

    # ---- after a pass --------------------------------------------------------------------------

    def passed(self, steps: RunningPass) -> None:
        """Leave out the rows that got no token; the others begin their step."""
        if not steps.decoded_all:
            self._let_rest([row for row in self._batch.requests if not steps.has_tokens(row)])
        if self._batch.requests:
            self._batch.begin_steps()

    def _let_rest(self, rows: list[VllmRequest]) -> None:
        """Leave rows without a token out of the launch. Their tokens in flight still count."""
        self.resting = rows
        self._batch.remove(rows)
        for row in rows:
            self._cache_decoded(row, was_scheduled=False)
        if self._in_flight is not None and self._decode_in_flight:
            for row in rows:
                row.num_generated += row not in self._in_flight.prefill

    def launch(self, prefill: list[VllmRequest]) -> VllmLaunch | None:
        """What the step computes; None: nothing."""
        rows = self._batch.requests
        # In order of admission: newly admitted requests come last in `prefill`.
        candidates = dict.fromkeys([*self.prefilling, *prefill])
        self.prefilling = [
            request
            for request in candidates
            if request.is_prefilling and request.status is Status.RUNNING
        ]
        self._last = None
        if not prefill and not rows:
            return None
        chunked = tuple([request for request in prefill if request.is_prefilling])
        launch = Launch(mode_of(prefill, rows), prefill, rows, chunked)
        launch.resting = self.resting
        launch.resumed = [row for row in self._resumed if row.in_running_batch]
        self._last = launch
        return launch

    # ---- requests that leave -------------------------------------------------------------------

    def preempted(self, victim: VllmRequest, *, was_scheduled: bool, keeps_token: bool) -> None:
        """A row loses its blocks next; `keeps_token`: it gets its token in flight (rule 13)."""
        if victim.in_running_batch:
            self._batch.remove([victim])
            victim.seq_len += was_scheduled
            if self._decode_in_flight and victim in self._resumed:
                victim.num_generated += 1  # `_join` did not count the step in flight
        self._cache_decoded(victim, was_scheduled=was_scheduled)
        launch = self._in_flight
        if launch is None or not keeps_token:
            return
        sampled = victim in launch.prefill and victim not in launch.chunked
        if sampled or victim in launch.decode:
            launch.put_back.append(victim)
            launch.leaving = [request for request in launch.leaving if request is not victim]

    def aborted(self, request: VllmRequest, in_flight: Sequence[VllmLaunch]) -> None:
        """A running request is given up: its token in flight is lost."""
        if request.in_running_batch:
            self._batch.remove([request])
        # Under async scheduling the token of a row in flight is cached a step later (rule 9).
        is_ahead = self._config.async_scheduling and any(
            request in flight.decode for flight in in_flight
        )
        num_tokens = min(request.seq_len - is_ahead, request.num_tokens)
        was_scheduled = self._last is not None and request in self._last.decode
        self._memory.cache_decoded(request.kv, num_tokens, decisions_ago=int(not was_scheduled))
        self.prefilling = [each for each in self.prefilling if each is not request]
        self.resting = [each for each in self.resting if each is not request]

    def ended(self, request: VllmRequest) -> None:
        """The last token is never cached, even if a step in flight has computed it (rule 9)."""
        num_tokens = min(request.seq_len, request.num_tokens - 1)
        self._memory.cache_decoded(request.kv, num_tokens)

    # ---- blocks that decoding fills ------------------------------------------------------------

    def _cache_decoded(self, request: VllmRequest, *, was_scheduled: bool) -> None:
        """Let other requests find the full blocks that vLLM would have cached by now (rule 9).

        A decode row in flight computes the KV of one token. vLLM caches it when the row's sampled
        token is known, or when the row is scheduled again. If a row leaves the batch before that,
        this token is not cached.
        """
        launch = self._in_flight
        num_known = request.num_tokens
        if request.in_running_batch and self._decode_in_flight and request in self._resumed:
            num_known += 1  # `_join` did not count the step in flight
        num_tokens = min(request.seq_len, num_known)
        if launch is not None and not was_scheduled and request not in launch.prefill:
            num_tokens -= request in launch.decode
        self._memory.cache_decoded(request.kv, num_tokens, decisions_ago=int(not was_scheduled))

    def catch_up(self, request: VllmRequest) -> None:
        """Called when another request looks for blocks that this one may have filled."""
        self._cache_decoded(request, was_scheduled=request.in_running_batch)


def mode_of(prefill: list[VllmRequest], rows: list[VllmRequest]) -> ForwardMode:
    """The kind of a step with these prefill and decode rows."""
    if not prefill:
        return ForwardMode.DECODE
    return ForwardMode.MIXED if rows else ForwardMode.EXTEND


def _are_in_order(rows: list[VllmRequest]) -> bool:
    """Whether the rows are in order of admission, which they nearly always are."""
    before = 0
    for row in rows:
        if row.admission < before:
            return False
        before = row.admission
    return True


class RowCounters:
    """Moves the counters of the requests of one server that goes row by row."""

    def __init__(self, config: VllmConfig, memory: KVCacheCoordinator, drafting: Drafting) -> None:
        self._config = config
        self._memory = memory
        self._drafting = drafting
        self._num_decided = 0

    def launch(
        self, steps: RunningPass, prefill: list[VllmRequest], number: int
    ) -> RowLaunch[VllmRequest] | None:
        """What decision `number` computes; None: nothing."""
        self._num_decided = number
        rows = steps.rows
        if not (prefill or rows):
            return None
        num_drafts = [steps.num_drafts[row] for row in rows]
        chunked = tuple([request for request in prefill if request.is_prefilling])
        for row, num_row_drafts in zip(rows, num_drafts, strict=True):
            self._note_launched(row, 1 + num_row_drafts, 1 + num_row_drafts)
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

    def _note_launched(self, request: VllmRequest, num_tokens: int, most_sampled: int) -> None:
        request.num_in_flight += num_tokens
        request.num_samples += most_sampled > 0
        if self._config.async_scheduling and most_sampled:
            request.num_placeholders += most_sampled
            request.num_drafts = self._drafting.num_tokens
            request.next_decode_step = self._num_decided + self._config.micro_batches

    def came(
        self,
        request: VllmRequest,
        *,
        num_tokens: int,
        num_drafts: int,
        num_sampled: int,
        num_kept: int,
        num_proposed: int,
    ) -> None:
        """A step has sampled tokens for a request; see `BaseScheduler.verified`.

        `num_tokens`: tokens that it computed for the request.
        """
        is_stale = request.result_came(num_tokens)
        request.num_samples -= 1
        is_async, rules = self._config.async_scheduling, self._config.rules
        num_rejected = num_drafts - (num_sampled - 1) if num_drafts else 0
        has_places = request.num_placeholders > 0
        if not is_stale:
            if request.seq_len > 0:
                # Tokens behind the end of the output were not computed for anything, either.
                request.seq_len -= num_rejected + num_sampled - num_kept
            if has_places:
                request.num_placeholders -= num_rejected + num_sampled
        if not is_async:
            request.num_drafts = num_proposed
        if is_stale or request.status is not Status.RUNNING:
            return
        if not (is_async or rules.caches_verified) or not (has_places or self._drafting.num_tokens):
            return
        if rules.caches_verified:
            num_cached = request.seq_len - request.num_in_flight
        else:
            num_cached = request.seq_len - request.num_placeholders
        self._memory.cache_blocks(request.kv, num_cached, request.num_tokens + num_kept)

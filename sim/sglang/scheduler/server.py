"""What an SGLang server has: requests, their KV and slots, and the batches that are decided.

The parts of the scheduler (`sim.sglang.scheduler.scheduler`) share it. Source of the batches:
SGLang 0.5.23, `get_next_batch_to_run` in managers/scheduler.py and `event_loop_pp` in managers/
scheduler_pp_mixin.py. A pipeline has as many micro-batches as stages. They take turns: a
micro-batch is decided when the result of its last step is known; all others may be in flight then.
The waiting queue, the pool, the prefix cache, the chunked request and the new-token ratio are those
of all: the chunks of a prompt go into one micro-batch after another. docs/explanation/pipeline.md
has the rules.
"""

from collections.abc import Sequence

import numpy as np

from sim.core.arrays import Int64
from sim.core.batch import ForwardMode
from sim.core.request import RequestSpec, Status
from sim.core.tokens import ArrayPrompt, TokenSequence
from sim.engine.decode_run import DraftRun
from sim.engine.page_pool import Span
from sim.engine.records import Decision, Launch
from sim.engine.request import OutputTokens
from sim.engine.running_batch import RunningBatch
from sim.engine.scheduler import BaseScheduler
from sim.engine.server_config import BOTH
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.config import SchedulerConfig
from sim.sglang.request import SglangBatch, SglangDecision, SglangLaunch, SglangRequest
from sim.sglang.scheduler.kept import KeptPrefixes


class RowSteps:
    """Decode steps whose rows get one token each; base class of other steps.

    Attributes:
        in_lockstep: all rows get the same number of tokens, so that equal steps can be passed in
            one go.
    """

    def __init__(self, kv: KVCacheManager) -> None:
        self._kv = kv
        self.in_lockstep = True

    def new_batch(self) -> SglangBatch:
        return RunningBatch(self._kv.page_size)

    def num_new_pages(self, running: SglangBatch) -> int:
        """New pages that the next decode step of all rows needs."""
        return running.num_new_pages

    def num_new_pages_of(self, rows: list[SglangRequest]) -> int:
        """New pages that a decode step of these rows needs."""
        return sum([request.seq_len % self._kv.page_size == 0 for request in rows])

    def begin(self, running: SglangBatch) -> None:
        """Allocate the KV of a decode step of all rows."""
        self._kv.decode(len(running.requests), running.num_new_pages)
        running.begin_steps()

    def launch(
        self,
        mode: ForwardMode,
        prefill: list[SglangRequest],
        decode: list[SglangRequest],
        chunked: tuple[SglangRequest, ...] = (),
    ) -> SglangLaunch:
        return Launch(mode, prefill, decode, chunked)

    def prompt_computed(self, request: SglangRequest) -> None:
        """The tokens that a prefill step computed are in the prefix cache."""

    def verified(self, request: SglangRequest, num_drafts: int, num_sampled: int) -> None:
        """A row that verified `num_drafts` tokens has sampled `num_sampled`."""

    def run(self, rows: Sequence[SglangRequest], outputs: Int64, *, overlaps: bool) -> DraftRun:
        """As `BaseScheduler.draft_run`.

        If the schedule `overlaps`, a step is decided before the result of the one before is known.
        """
        raise NotImplementedError

    def take(self, rows: Sequence[SglangRequest], run: DraftRun) -> Int64:
        """As `BaseScheduler.drafts_again`."""
        raise NotImplementedError

    def give_up(self, request: SglangRequest) -> None:
        """A request's client has given up, or it has waited or run for too long."""

    def num_cacheable(self, request: SglangRequest) -> int:
        """Tokens with KV that go into the prefix cache when a request ends.

        The last token has KV only under overlap: a step was decided before that token was known to
        be the last.
        """
        return min(request.seq_len, request.num_tokens)


class DecodeTurns:
    """Limits a decode step to `max_rows` rows; the other running requests rest and keep their KV.

    The requests that have rested longest decode next. While a decision is made, the running batch
    has all running requests as rows; between decisions it has only those whose turn it is.

    Attributes:
        resting: running requests whose turn it is not, longest rest first.
    """

    def __init__(self, running: SglangBatch, max_rows: int | None) -> None:
        self._running = running
        self._max_rows = max_rows
        self.resting: list[SglangRequest] = []

    def gather(self) -> None:
        """Put the resting requests back into the running batch, before the other rows."""
        if self.resting:
            self._running.prepend(self.resting)
            self.resting = []

    def rest(self) -> None:
        """Keep only the first rows in the running batch: it is their turn."""
        if self._max_rows is not None and len(self._running) > self._max_rows:
            self.resting = self._running.requests[self._max_rows :]
            self._running.remove(self.resting)


class MicroBatch:
    """Requests that decode together.

    Attributes:
        turns: which of them decode in a step.
        last: the last launch; rows that it prefilled decode from the next decision on.
        ended: rows that have finished and still count, until the next decode step.
        is_full: SGLang's `batch_is_full` flag (rule 7).
        kept_extend_tokens: prefill tokens of the batch from which the running batch grew. SGLang's
            batch object keeps this number and adds it to the processed tokens at every decode step;
            policy hrrn uses that counter, so it is done here too.
    """

    def __init__(self, running: SglangBatch, max_decode_rows: int | None) -> None:
        self.running = running
        self.turns = DecodeTurns(running, max_decode_rows)
        self.last: SglangLaunch | None = None
        self.ended: list[SglangRequest] = []
        self.is_full = False
        self.kept_extend_tokens = 0

    @property
    def num_rows(self) -> int:
        """Rows of SGLang's running batch, with those that have finished."""
        return len(self.running.requests) + len(self.ended)

    @property
    def num_running(self) -> int:
        """Running requests, with those that rest."""
        return len(self.running.requests) + len(self.turns.resting)

    @property
    def prefilled(self) -> list[SglangRequest]:
        return [] if self.last is None else self.last.prefill

    @property
    def live_requests(self) -> list[SglangRequest]:
        """The requests of the running batch and of the last launch that have not ended."""
        rows = dict.fromkeys([*self.running.requests, *self.turns.resting, *self.prefilled])
        return [request for request in rows if request.status is Status.RUNNING]

    def merge_last_prefill(self, chunked: SglangRequest | None) -> None:
        """Requests whose prompts are computed join the running batch; `chunked` has more chunks."""
        last, running = self.last, self.running
        if last is None or last.mode is ForwardMode.DECODE:
            return
        rows = [
            request
            for request in last.prefill
            if request not in last.chunked
            and request is not chunked
            and request.status is Status.RUNNING
        ]
        if last.mode is ForwardMode.MIXED:
            # The mixed batch replaces the running batch; its full flag is not set (rule 7).
            running.prepend(rows)
            self.is_full = False
            self.kept_extend_tokens = last.num_new_tokens
            return
        if rows and not self.num_rows:
            self.kept_extend_tokens = last.num_new_tokens
        if len(rows) < len(last.prefill) or not self.num_rows:
            self.is_full = False
        running.append(rows)


# SGLang 0.5.23 keeps a few tokens of the context free.
_SPARE_CONTEXT_TOKENS = 5
# `Req.set_finish_with_abort` puts this in the place of a prompt that is too long.
_ONE_TOKEN = ArrayPrompt(np.zeros(1, dtype=np.int64))


class SglangServer(BaseScheduler[SglangRequest]):
    """The part of the scheduler that keeps account of requests, their KV and their slots.

    Attributes:
        storage: what is below its host memory; None: nothing.
        kept: prefixes of requests that have ended; None: the policy keeps none.
        mixes: rows decode in steps with prefill rows, too.
        steps: what a decode step gives a row: one token, or those of accepted drafts.
        batches: one, or those of a pipeline's micro-batches.
        batch, other_batches: the one of them that is decided, and all others.
        decision: what the latest call of `decide` decided.
        now_ns: the time of the latest call from outside.
        has_dropped_rows: the latest decision has dropped rows that had finished.
    """

    family = "sglang"

    def __init__(self, config: SchedulerConfig, kv: KVCacheManager, steps: RowSteps) -> None:
        super().__init__(kv)
        self.config = config
        self.kv = kv
        self.storage = kv.storage
        self.stores = () if kv.storage is None else (kv.storage.store,)
        self.rules = config.rules
        self.kept: KeptPrefixes | None = None
        self.mixes = config.mixing
        self.steps = steps
        self.batches = [
            MicroBatch(steps.new_batch(), config.decode_max_requests)
            for _ in range(config.micro_batches)
        ]
        self.use_micro_batch(0)
        self.takes_turns = config.micro_batches > 1
        # `pp_max_micro_batch_size`
        self._max_rows = max(config.max_running_requests // config.micro_batches, 1)
        # `max_req_len`
        self._longest = min(config.context_length, config.pool_tokens) - 1
        self.poll_interval = config.scheduler_recv_interval
        self.ends_in_batch_order = True
        self.decision: SglangDecision = Decision()
        self.now_ns = 0
        self.has_dropped_rows = False
        self._serves_alone = config.role == BOTH

    # ---- requests ------------------------------------------------------------------------------

    def token_limit(self, prompt_len: int, max_new_tokens: int) -> int:
        """`max_new_tokens` as far as context and pool allow; at least 0 (rule 1)."""
        page_size, pool_tokens = self.kv.page_size, self.config.pool_tokens
        room = pool_tokens - self.kv.ceil_page(prompt_len) - page_size - 1
        room = min(self._longest - prompt_len - 1, room)
        return max(min(max_new_tokens, room), 0)

    def _is_too_long(self, prompt_len: int) -> bool:
        """SGLang 0.5.23: `validate_input_length` in managers/utils.py."""
        return prompt_len >= self._longest - _SPARE_CONTEXT_TOKENS

    def _takes(self, prompt_len: int, limit: int) -> bool:
        """False if the front end refuses the prompt, or if it would wait for ever (rule 1).

        `limit`: its `token_limit`.
        """
        if prompt_len >= self.config.context_length:
            return False
        num_tokens = prompt_len
        if self._is_too_long(prompt_len):
            if not self._serves_alone:
                return False
            num_tokens = 1
        num_tokens += min(limit, self.config.clip_max_new_tokens)
        return num_tokens + self.kv.page_size < self.config.pool_tokens

    def new_request(self, spec: RequestSpec, limit: int, outputs: OutputTokens) -> SglangRequest:
        config = self.config
        too_long = self._is_too_long(len(spec.prompt))
        prompt = _ONE_TOKEN if too_long else spec.prompt
        kv = self.kv.new_request(prompt, outputs, spec.session)
        request = SglangRequest(spec, kv, limit=limit, priority=config.usual_priority)
        if too_long:
            request.prompt_len = 1
            request.end_status = Status.REJECTED
        if spec.priority is not None or config.enable_priority_scheduling:
            kv.priority = request.priority
        return request

    def note_dropped(self) -> None:
        """Requests that the decision has dropped count as aborted by it."""
        for request in self.take_dropped():
            request.status = Status.ABORTED
            self.decision.aborted.append(request)

    def note_admitted(self, requests: Sequence[SglangRequest]) -> None:
        """These requests are prefilled next; a chunked one may have been before."""
        for request in requests:
            if self.storage is not None:
                self.storage.admitted(request)
            if self.kept is not None:
                self.kept.admitted(request)

    def makes_room(self) -> bool:
        """Let go of a kept prefix for requests that do not fit; False: there is none."""
        return self.kept is not None and self.kept.make_room()

    # ---- batches -------------------------------------------------------------------------------

    def use_micro_batch(self, number: int) -> None:
        self.batch = self.batches[number]
        self.other_batches = [batch for batch in self.batches if batch is not self.batch]
        self.running = self.batch.running

    @property
    def others_run(self) -> bool:
        """Requests run in other micro-batches of a pipeline."""
        return any(other.live_requests for other in self.other_batches)

    def num_free_slots(self, num_held: int) -> int:
        """How many requests this prefill batch may have; `num_held` of them have slots already."""
        num_free = self.config.max_running_requests - self.num_slots_used + num_held
        return min(self._max_rows - self.batch.num_rows, max(num_free, 0))

    def drop_finished(self) -> bool:
        """Remove finished rows from the running batch; returns whether that makes room."""
        if not self.has_finished_rows:
            return False
        self.has_finished_rows = False
        finished = [r for r in self.running.requests if r.status is not Status.RUNNING]
        self.running.remove(finished)
        if self.rules.drops_finished_first:
            return bool(finished)
        self.batch.ended += finished
        return False

    # ---- KV ------------------------------------------------------------------------------------

    def match_prefix(self, request: SglangRequest) -> None:
        """Match a candidate's tokens but for the last one, which has to be computed (rule 4)."""
        self._match(request)
        self.kv.prepare_candidate(request.kv)

    def look_up(self, request: SglangRequest, known_end: int | None = None) -> None:
        """Match a waiting request's tokens, and look in the store for those that follow.

        `known_end`: up to this token they are known to be there.
        """
        if self.storage is not None:
            self._match(request)
            self.storage.look_up(request, known_end)

    def _match(self, request: SglangRequest) -> None:
        num_tokens = request.fill_len = request.num_tokens
        request.found(self.kv.find_prefix(request.kv, num_tokens, num_tokens - 1))
        request.matched_len = request.prefix_len + request.kv.host_len

    def prefill_computed(self, request: SglangRequest) -> None:
        """Put the computed tokens into the prefix cache (rule 14)."""
        self.checkpoint(request, request.extend_end)
        self.steps.prompt_computed(request)

    def give_back(self, request: SglangRequest) -> None:
        """Put the request's tokens into the prefix cache, then free its KV and slot."""
        self.kv.note_end(request)
        self.checkpoint(request, self.steps.num_cacheable(request), is_finished=True)
        self.release(request)

    def checkpoint(
        self, request: SglangRequest, num_tokens: int, *, is_finished: bool = False
    ) -> None:
        """Give the KV of a request's first tokens to the prefix cache, in whole pages."""
        self.kv.checkpoint(
            request.kv,
            num_tokens,
            prompt_len=request.prompt_len,
            seq_len=request.seq_len,
            is_finished=is_finished,
        )

    def release(self, request: SglangRequest) -> None:
        """Free a request's KV and its slot."""
        self.kv.release(request.kv, request.seq_len)
        self.free_slot(request)

    def release_for_later(self, request: SglangRequest, num_remaining: int) -> None:
        """Free the KV of a request that goes back to the queue (rule 11).

        As in SGLang, cached leaves are evicted until there is room for `retract_decode_steps`
        decode steps of `num_remaining` rows.
        """
        self.release(request)
        self.kv.evict_until_free(num_remaining * self.config.retract_decode_steps)
        request.status = Status.WAITING
        request.lose_prefix()
        request.matched_len = 0

    def token_ids(self, request: SglangRequest, num_tokens: int) -> TokenSequence:
        return request.kv.token_ids(num_tokens)

    def spans(self, request: SglangRequest, num_tokens: int) -> list[Span]:
        return self.kv.spans(request.kv, num_tokens)

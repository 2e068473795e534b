"""The first half of a vLLM step: which running requests get tokens (rules 2 to 4).

The pass visits the running requests in order of admission until the token budget is spent. Each
wants the tokens that it lacks: those of its prompt that are not computed, or its last known token
and its draft tokens. When a request needs more blocks than are free, running requests are preempted
one by one, until the blocks suffice or the request in need is preempted itself.

Example with policy `fcfs`: A, B, C run, admitted in this order; all decode. One block is free, and
both A and B need a new one.

    A    takes the free block and gets its token
    B    finds no free block: C, admitted last, is preempted and frees its 5 blocks;
         B takes one of them and gets its token
    C    is not running any more, so the pass ends; no waiting request is admitted in this step

If only A and B ran, B would preempt itself. With policy `priority` and A the least important, B
preempts A, although A already has its token for this step. The token goes back to the budget. The
pass moves its index in the list back by one, because A stood before B and is gone.

Versions before 0.33.0 end the pass when a request preempted itself, and move the index back only if
the victim had tokens (`VllmRules`).

vLLM 0.19.0 and 0.33.0: `Scheduler.schedule`, first loop (v1/core/sched/scheduler.py).
"""

from collections.abc import Callable
from typing import NamedTuple

from sim.vllm.cache.kv_cache_coordinator import KVCacheCoordinator
from sim.vllm.config import VllmConfig
from sim.vllm.request import Chunk, VllmBatch, VllmRequest
from sim.vllm.scheduler.connector import Connector
from sim.vllm.scheduler.step_limits import AlignedChunks, Drafting

# Takes the blocks of a victim and puts it back into the waiting queue. Its arguments: the request
# that needs blocks, the victim, and whether the victim had already got tokens in this pass.
Preempt = Callable[[VllmRequest, VllmRequest, bool], None]

# A request that was preempted this often is ordered by its entry; see `_least_important`.
_MOST_PREEMPTIONS = 100


class PromptLimits(NamedTuple):
    """What limits the prompts of one step.

    Attributes:
        largest_chunk: most tokens of one request; 0: no limit but the budget.
        are_deferred: no prompts; of the waiting requests only those that lack a single token.
        aligned: where chunks end; None: anywhere.
    """

    largest_chunk: int
    are_deferred: bool
    aligned: AlignedChunks | None = None


def largest_chunk(config: VllmConfig, num_requests: int) -> int:
    """The most tokens of one request in a step; 0: no limit but the budget (rule 3).

    `num_requests` run or wait when the step is decided.
    """
    threshold = config.long_prefill_token_threshold
    if threshold and config.rules.spares_lone_request and num_requests <= 1:
        return 0
    if threshold and config.long_prefill_token_threshold_adaptive:
        return max(threshold, config.max_num_batched_tokens // num_requests)
    return threshold


def chunk_tokens(num_left: int, largest: int, budget: int) -> int:
    """How many of its `num_left` tokens a request may compute in this step."""
    if 0 < largest < num_left:
        num_left = largest
    return min(num_left, budget)


class PrefillCadence:
    """Keeps prompts out of the steps between two that have some (rule 14).

    Attributes:
        interval: `prefill_schedule_interval`. 1: prompts are in any step.
    """

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self._num_steps = 0
        # A whole interval ago, so that the first step may have prompts.
        self._last_prefill_step = -interval
        self._leaves_some_waiting = False

    def defers(self, decodes: bool) -> bool:
        """Whether the next step has no prompts; `decodes`: some request has computed its prompt."""
        since = self._num_steps + 1 - self._last_prefill_step
        return decodes and not self._leaves_some_waiting and since < self.interval

    def admitted(self, num_waiting: int) -> None:
        """A step has admitted requests; while any still wait, prompts may be in every step."""
        self._leaves_some_waiting = num_waiting > 0

    def decided(self, *, prefills: bool, num_steps: int = 1) -> None:
        """Count steps that compute something; `prefills`: also prompt tokens."""
        self._num_steps += num_steps
        if prefills:
            self._last_prefill_step = self._num_steps

    def repeats(self, num_waiting: int) -> bool:
        """Whether decisions that only decode do not change what comes after them."""
        return self.interval == 1 or self._leaves_some_waiting == (num_waiting > 0)


class RunningPass:
    """The pass over the running requests of one server.

    Attributes:
        budget: tokens of the step that no request has got yet.
        chunks: requests that get a further chunk of their prompt in this step, in order.
        has_prefilled: a request got a chunk, whether or not it was preempted afterwards.
        rows: requests that decode in this step row by row, in order.
        num_drafts: by request of `rows`, the draft tokens that the step verifies.
        decoded_all: all rows of the running batch got their tokens at once.
    """

    def __init__(
        self,
        config: VllmConfig,
        *,
        memory: KVCacheCoordinator,
        drafting: Drafting,
        batch: VllmBatch,
        preempt: Preempt,
        connector: Connector,
    ) -> None:
        """Prepare the passes of a server.

        `batch` has the rows in lockstep, which get one token each; for `preempt` see `Preempt`.
        """
        self._config = config
        self._rules = config.rules
        self._by_priority = config.scheduling_policy == "priority"
        self._memory = memory
        self._drafting = drafting
        self._batch = batch
        self._preempt = preempt
        self._fences = connector.fences
        self._most_output = connector.most_output_tokens
        self._number = 0
        self._reset([], PromptLimits(0, are_deferred=False))

    def _reset(self, admitted: list[VllmRequest], limits: PromptLimits) -> None:
        self._admitted = admitted
        self._limits = limits
        self._next = 0
        self._num_tokens: dict[VllmRequest, int] = {}
        self.budget = self._drafting.step_tokens
        self.chunks: list[VllmRequest] = []
        self.rows: list[VllmRequest] = []
        self.num_drafts: dict[VllmRequest, int] = {}
        self.has_prefilled = self.decoded_all = self._is_stuck = False

    def run(
        self,
        admitted: list[VllmRequest],
        prefilling: list[VllmRequest],
        limits: PromptLimits,
        number: int,
    ) -> None:
        """Visit the running requests.

        `admitted` are all running requests, in order of admission; victims are removed from it.
        `prefilling` are those with more chunks to come, if others are rows in lockstep. `number` is
        that of the decision, from 1.
        """
        self._reset(admitted, limits)
        self._number = number
        if self._batch.requests:
            self._decode_all(prefilling)
        goes_on = self._by_priority and self._rules.goes_on_after_self_preemption
        while self._next < len(admitted) and self.budget > self._drafting.row_slots:
            if self._visit(admitted[self._next]):
                self._next += 1
            elif not goes_on or self._is_stuck:
                return

    def _decode_all(self, prefilling: list[VllmRequest]) -> None:
        """Give all rows in lockstep their tokens at once.

        A shortcut for the usual case: enough blocks are free, and all prompts in progress were
        admitted after the rows. It decides what visiting each row would decide.
        """
        num_blocks, first = self._batch.num_new_pages, len(self._admitted) - len(prefilling)
        if num_blocks > self._memory.num_free_pages or self._admitted[first:] != prefilling:
            return
        self._memory.reserve_pages(num_blocks)
        self.budget -= len(self._batch)
        self.decoded_all = True
        self._next = first

    @property
    def has_rows(self) -> bool:
        """Some running request has tokens in this step."""
        return self.budget < self._drafting.step_tokens

    def has_tokens(self, request: VllmRequest) -> bool:
        """Whether a request has got tokens in this pass by a visit."""
        return request in self._num_tokens

    # ---- one request ---------------------------------------------------------------------------

    def _visit(self, request: VllmRequest) -> bool:
        """Give a running request its tokens, if it may have any; False: it was preempted."""
        if request.lockstep is not None:
            return self._decode_in_lockstep(request)
        num_tokens = self._num_wanted(request)
        return num_tokens <= 0 or self._schedule(request, num_tokens)

    def _decode_in_lockstep(self, request: VllmRequest) -> bool:
        """As `_schedule`, for a row of the running batch, whose counters move with the batch."""
        num_missing = int(request.seq_len % self._memory.page_size == 0)
        if not self._make_room(num_missing, request):
            return False
        self._memory.reserve_pages(num_missing)
        self._spend(request, 1)
        return True

    def _num_wanted(self, request: VllmRequest) -> int:
        """How many tokens a request gets if there are blocks for them."""
        num_computed, num_in_flight = request.seq_len, request.num_placeholders
        most_output = self._most_output or request.spec.max_new_tokens
        longest = request.prompt_len + most_output
        if (
            num_in_flight > 0
            and num_computed + 2 - num_in_flight >= longest
            and self._rules.leaves_out_finishing
        ):
            return 0  # a token in flight is its last one, even if all drafts are rejected
        if self._number < request.next_decode_step:
            return 0  # the stages of a pipeline do not know its last token yet
        if self._limits.are_deferred and request.is_prefilling:
            return 0
        num_tokens = request.num_tokens + request.num_drafts + num_in_flight - num_computed
        budget = self.budget - self._drafting.row_slots
        num_tokens = chunk_tokens(num_tokens, self._limits.largest_chunk, budget)
        num_tokens = min(num_tokens, self._config.max_model_len - 1 - num_computed)
        aligned = self._limits.aligned
        if aligned is None or num_tokens <= 0:
            return num_tokens
        return aligned.num_tokens(request, num_computed, num_tokens, request.kv.junction)

    def _schedule(self, request: VllmRequest, num_tokens: int) -> bool:
        """Give a request its tokens; False: it was preempted."""
        end = request.seq_len + num_tokens
        chunk = self._begin_chunk(request, end)
        num_missing = self._memory.num_blocks_to_allocate(request.kv, chunk)
        if not self._make_room(num_missing, request):
            return False
        self._allocate(request, end, chunk)
        if request.is_prefilling:
            request.chunk_computed()
            request.take_chunk(end)
            request.padding = 0
            self.chunks.append(request)
            self.has_prefilled = True
        else:
            self.rows.append(request)
            self.num_drafts[request] = min(num_tokens - 1, request.num_drafts)
        request.num_drafts = 0
        request.seq_len = end
        self._spend(request, num_tokens + self._drafting.row_slots)
        return True

    def _begin_chunk(self, request: VllmRequest, end: int) -> Chunk:
        """What a request computes up to `end`; frees the blocks that it leaves behind first."""
        num_processed = request.seq_len
        if self._rules.keeps_blocks_in_flight:
            num_processed -= request.num_in_flight
        self._memory.remove_skipped_blocks(request.kv, num_processed)
        num_places = min(end + self._drafting.lookahead, self._config.max_model_len)
        return Chunk(request.seq_len, num_places, request.prefill_end, num_places - end)

    def _allocate(self, request: VllmRequest, end: int, chunk: Chunk) -> None:
        self._memory.allocate_new_blocks(request.kv, chunk)
        self._memory.cache_blocks(request.kv, end, request.num_tokens)

    def decode_again(self, row: VllmRequest) -> None:
        """Give a row the blocks of its next token, of which there are enough."""
        end = row.seq_len + 1
        self._allocate(row, end, self._begin_chunk(row, end))

    def _spend(self, request: VllmRequest, num_tokens: int) -> None:
        self._num_tokens[request] = num_tokens
        self.budget -= num_tokens

    # ---- preemption ----------------------------------------------------------------------------

    def _make_room(self, num_blocks: int, request: VllmRequest) -> bool:
        """Preempt until `num_blocks` blocks are free.

        False: the request itself was preempted, or the victim cannot be preempted now, because a
        step in flight may write into its blocks. Then the pass ends.
        """
        while num_blocks > self._memory.num_free_pages:
            victim = self._choose_victim()
            if self._fences is not None and self._fences.is_in_flight(victim):
                self._is_stuck = True
                return False
            self._preempt(request, victim, self._remove_victim(victim))
            if victim is request:
                return False
        return True

    def _choose_victim(self) -> VllmRequest:
        """fcfs: the request admitted last. priority: the largest (priority value, arrival time)."""
        if not self._by_priority:
            return self._admitted[-1]
        return max(self._admitted, key=_least_important)

    def _remove_victim(self, victim: VllmRequest) -> bool:
        """Remove a victim from the pass; True if it had already got tokens in this pass.

        Its tokens go back to the budget. Up to 0.19.0 the index in the list moves back only for a
        victim with tokens. So if a victim stood before the current request and had no tokens, the
        request behind the current one is skipped in this step.
        """
        place = self._admitted.index(victim)
        del self._admitted[place]
        decoded = self.decoded_all and victim.lockstep is not None
        num_tokens = self._num_tokens.pop(victim, int(decoded))
        if place < self._next and (num_tokens or self._rules.steps_back_for_any_victim):
            self._next -= 1
        if num_tokens:
            self.budget += num_tokens
            if victim in self.chunks:
                self.chunks.remove(victim)
            self.rows = [row for row in self.rows if row is not victim]
        return num_tokens > 0


def _least_important(request: VllmRequest) -> tuple[int, int, int]:
    """Sort key of the victim: largest priority value, then latest arrival.

    Of two equal requests, the one admitted first is the victim. It is then admitted again, last,
    so that the next victim is the other one: two requests with the same arrival time could preempt
    each other for ever. In vLLM no two arrival times are equal. Here, once a request was preempted
    100 times, its order of entry decides, which ends the cycle.
    """
    is_stuck = request.preemptions >= _MOST_PREEMPTIONS
    return request.priority, request.spec.arrival_ns, request.entry if is_stuck else 0

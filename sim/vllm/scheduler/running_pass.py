"""The first half of a vLLM step: which running requests get tokens (rules 2 to 4).

The pass visits the running requests in order of admission until the token budget is spent. When a
request needs more blocks than are free, running requests are preempted one by one, until the blocks
suffice or the request in need is preempted itself.

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
the victim had tokens (`VersionRules`).
"""

from collections.abc import Callable
from typing import NamedTuple

from sim.vllm.cache.manager import BlockManager
from sim.vllm.config import VllmConfig
from sim.vllm.request import VllmBatch, VllmRequest
from sim.vllm.scheduler.step_limits import PromptLimits, chunk_tokens


class Preemption(NamedTuple):
    """A request was preempted.

    Attributes:
        by: the request that needed blocks.
        victim: the request that lost its blocks.
        was_scheduled: the victim had already got tokens in this pass.
    """

    by: VllmRequest
    victim: VllmRequest
    was_scheduled: bool


Preempt = Callable[[Preemption], None]

# A request that was preempted this often is ordered by its entry; see `_least_important`.
_MOST_PREEMPTIONS = 100


class RunningPass:
    """One pass over the running requests.

    Attributes:
        budget: tokens of the step that no request has got yet.
        chunks: requests that get a further chunk of their prompt in this step, in order.
        has_prefilled: a request got a chunk, whether or not it was preempted afterwards.
    """

    def __init__(
        self,
        config: VllmConfig,
        *,
        kv: BlockManager,
        running: VllmBatch,
        admitted: list[VllmRequest],
        prefilling: list[VllmRequest],
        preempt: Preempt,
        limits: PromptLimits,
    ) -> None:
        """Prepare a pass.

        Args:
            config: the settings.
            kv: the blocks.
            running: the running requests that decode.
            admitted: all running requests, in order of admission; the pass removes victims from it.
            prefilling: the running requests with more chunks to come, in the same order.
            preempt: takes a victim's blocks and puts it back into the waiting queue.
            limits: what limits the prompts of this step.
        """
        self._admitted = admitted
        self._prefilling = prefilling
        self._preempt = preempt
        self._rules = config.rules
        self._limits = limits
        self._kv = kv
        self._running = running
        self._by_priority = config.scheduling_policy == "priority"
        self._next = 0
        self._decoded_all = False
        self._num_tokens: dict[VllmRequest, int] = {}
        self.budget = config.max_num_batched_tokens
        self.chunks: list[VllmRequest] = []
        self.has_prefilled = False

    def run(self) -> None:
        """Visit the running requests."""
        self._decode_all()
        while self._next < len(self._admitted) and self.budget > 0:
            request = self._admitted[self._next]
            if request.lockstep is self._running:
                is_scheduled = self._decode(request)
            elif request.lockstep is None and request.extend_end < request.fill_len:
                is_scheduled = self._limits.are_deferred or self._continue_prefill(request)
            else:
                # Its last token is in flight, so it needs none (rule 12).
                is_scheduled = True
            if is_scheduled:
                self._next += 1
            elif not (self._by_priority and self._rules.goes_on_after_self_preemption):
                return

    def _decode_all(self) -> None:
        """Give all decode rows their tokens at once.

        A shortcut for the usual case: enough blocks are free, and all prompts in progress were
        admitted after the rows.
        """
        num_blocks, num_others = self._running.num_new_pages, len(self._prefilling)
        first = len(self._admitted) - num_others
        if num_blocks > self._kv.num_free_pages or self._admitted[first:] != self._prefilling:
            return
        self._kv.promise_pages(num_blocks)
        self.budget -= len(self._running)
        self._decoded_all = True
        self._next = first

    @property
    def rows_without_token(self) -> list[VllmRequest]:
        """The decode rows that get no token in this step."""
        if self._decoded_all:
            return []
        return [row for row in self._running.requests if row not in self._num_tokens]

    def _decode(self, request: VllmRequest) -> bool:
        """Give a decode row its token; False: the row was preempted."""
        num_missing = int(request.seq_len % self._kv.page_size == 0)
        if not self._make_room(num_missing, request):
            return False
        self._kv.promise_pages(num_missing)
        self._spend(request, 1)
        return True

    def _continue_prefill(self, request: VllmRequest) -> bool:
        """Give a prompt its next chunk; False: the request was preempted."""
        num_left = request.fill_len - request.extend_end
        num_tokens = chunk_tokens(num_left, self._limits.largest_chunk, self.budget)
        end = request.extend_end + num_tokens
        if not self._make_room(self._kv.num_missing(request.kv, end), request):
            return False
        self._kv.grow(request.kv, end)
        request.chunk_computed()
        request.take_chunk(end)
        request.seq_len = end
        self.chunks.append(request)
        self.has_prefilled = True
        self._spend(request, num_tokens)
        return True

    def _spend(self, request: VllmRequest, num_tokens: int) -> None:
        self._num_tokens[request] = num_tokens
        self.budget -= num_tokens

    def _make_room(self, num_blocks: int, request: VllmRequest) -> bool:
        """Preempt until `num_blocks` blocks are free; False: the request itself was preempted."""
        while num_blocks > self._kv.num_free_pages:
            victim = self._choose_victim()
            self._preempt(Preemption(request, victim, self._remove_victim(victim)))
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
        num_tokens = self._num_tokens.pop(
            victim, int(self._decoded_all and victim.lockstep is self._running)
        )
        if place < self._next and (num_tokens or self._rules.steps_back_for_any_victim):
            self._next -= 1
        if num_tokens:
            self.budget += num_tokens
            if victim in self.chunks:
                self.chunks.remove(victim)
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

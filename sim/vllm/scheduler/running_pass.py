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
from typing import Generic

from sim.vllm.cache.memory import BlockMemory
from sim.vllm.config import VllmConfig
from sim.vllm.request import V, VllmRequest
from sim.vllm.scheduler.block_fences import BlockFences
from sim.vllm.scheduler.step_limits import PromptLimits

# Takes the blocks of a victim and puts it back into the waiting queue. Its arguments: the request
# that needs blocks, the victim, and whether the victim had already got tokens in this pass.
Preempt = Callable[[V, V, bool], None]

# A request that was preempted this often is ordered by its entry; see `_least_important`.
_MOST_PREEMPTIONS = 100


class RunningPass(Generic[V]):
    """Base class: one pass over the running requests, in order of admission.

    Attributes:
        budget: tokens of the step that no request has got yet.
        chunks: requests that get a further chunk of their prompt in this step, in order.
        has_prefilled: a request got a chunk, whether or not it was preempted afterwards.
        fences: says which requests cannot be preempted now; None: all can.
    """

    def __init__(
        self,
        config: VllmConfig,
        *,
        memory: BlockMemory,
        admitted: list[V],
        preempt: Preempt[V],
        limits: PromptLimits,
        budget: int,
    ) -> None:
        """Prepare a pass.

        Args:
            config: the settings.
            memory: the blocks.
            admitted: all running requests, in order of admission; the pass removes victims from it.
            preempt: see `Preempt`.
            limits: what limits the prompts of this step.
            budget: tokens of the step.
        """
        self._admitted = admitted
        self._preempt = preempt
        self._rules = config.rules
        self._limits = limits
        self._memory = memory
        self._by_priority = config.scheduling_policy == "priority"
        self._next = 0
        self._num_tokens: dict[V, int] = {}
        # What a row takes of the budget besides its tokens.
        self._row_slots = 0
        self._step_tokens = self.budget = budget
        self.chunks: list[V] = []
        self.has_prefilled = False
        self.fences: BlockFences | None = None
        self._is_stuck = False

    def run(self) -> None:
        """Visit the running requests."""
        goes_on = self._by_priority and self._rules.goes_on_after_self_preemption
        while self._next < len(self._admitted) and self.budget > self._row_slots:
            if self._visit(self._admitted[self._next]):
                self._next += 1
            elif not goes_on or self._is_stuck:
                return

    def _visit(self, request: V) -> bool:
        """Give a running request its tokens, if it may have any; False: it has no room."""
        raise NotImplementedError

    @property
    def has_rows(self) -> bool:
        """Some running request has tokens in this step."""
        return self.budget < self._step_tokens

    def _spend(self, request: V, num_tokens: int) -> None:
        self._num_tokens[request] = num_tokens
        self.budget -= num_tokens

    def _take_chunk(self, request: V, end: int) -> None:
        """Let a request compute its prompt up to `end`; it has the blocks."""
        request.chunk_computed()
        request.take_chunk(end)
        self.chunks.append(request)
        self.has_prefilled = True

    def _make_room(self, num_blocks: int, request: V) -> bool:
        """Preempt until `num_blocks` blocks are free.

        False: the request itself was preempted, or the victim cannot be preempted now, because a
        step in flight may write into its blocks. Then the pass ends.
        """
        while num_blocks > self._memory.num_free_pages:
            victim = self._choose_victim()
            if self.fences is not None and self.fences.is_in_flight(victim):
                self._is_stuck = True
                return False
            self._preempt(request, victim, self._remove_victim(victim))
            if victim is request:
                return False
        return True

    def _choose_victim(self) -> V:
        """fcfs: the request admitted last. priority: the largest (priority value, arrival time)."""
        if not self._by_priority:
            return self._admitted[-1]
        return max(self._admitted, key=_least_important)

    def _remove_victim(self, victim: V) -> bool:
        """Remove a victim from the pass; True if it had already got tokens in this pass.

        Its tokens go back to the budget. Up to 0.19.0 the index in the list moves back only for a
        victim with tokens. So if a victim stood before the current request and had no tokens, the
        request behind the current one is skipped in this step.
        """
        place = self._admitted.index(victim)
        del self._admitted[place]
        num_tokens = self._take_back(victim)
        if place < self._next and (num_tokens or self._rules.steps_back_for_any_victim):
            self._next -= 1
        if num_tokens:
            self.budget += num_tokens
            if victim in self.chunks:
                self.chunks.remove(victim)
        return num_tokens > 0

    def _take_back(self, victim: V) -> int:
        """The tokens that a victim had got in this pass."""
        return self._num_tokens.pop(victim, 0)


def _least_important(request: VllmRequest) -> tuple[int, int, int]:
    """Sort key of the victim: largest priority value, then latest arrival.

    Of two equal requests, the one admitted first is the victim. It is then admitted again, last,
    so that the next victim is the other one: two requests with the same arrival time could preempt
    each other for ever. In vLLM no two arrival times are equal. Here, once a request was preempted
    100 times, its order of entry decides, which ends the cycle.
    """
    is_stuck = request.preemptions >= _MOST_PREEMPTIONS
    return request.priority, request.spec.arrival_ns, request.entry if is_stuck else 0

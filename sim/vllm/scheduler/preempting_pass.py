"""What every pass over vLLM's running requests does: spend tokens, and preempt to make room."""

from collections.abc import Callable
from typing import NamedTuple

from sim.vllm.cache.memory import BlockMemory
from sim.vllm.config import VllmConfig
from sim.vllm.request import VllmRequest
from sim.vllm.scheduler.step_limits import PromptLimits


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


class PreemptingPass:
    """Base class: a pass over the running requests, in order of admission.

    Attributes:
        budget: tokens of the step that no request has got yet.
        chunks: requests that get a further chunk of their prompt in this step, in order.
        has_prefilled: a request got a chunk, whether or not it was preempted afterwards.
    """

    def __init__(
        self,
        config: VllmConfig,
        *,
        memory: BlockMemory,
        admitted: list[VllmRequest],
        preempt: Preempt,
        limits: PromptLimits,
        budget: int,
    ) -> None:
        """Prepare a pass.

        Args:
            config: the settings.
            memory: the blocks.
            admitted: all running requests, in order of admission; the pass removes victims from it.
            preempt: takes a victim's blocks and puts it back into the waiting queue.
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
        self._num_tokens: dict[VllmRequest, int] = {}
        self.budget = budget
        self.chunks: list[VllmRequest] = []
        self.has_prefilled = False

    def _spend(self, request: VllmRequest, num_tokens: int) -> None:
        self._num_tokens[request] = num_tokens
        self.budget -= num_tokens

    def _make_room(self, num_blocks: int, request: VllmRequest) -> bool:
        """Preempt until `num_blocks` blocks are free; False: the request itself was preempted."""
        while num_blocks > self._memory.num_free_pages:
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
        num_tokens = self._take_back(victim)
        if place < self._next and (num_tokens or self._rules.steps_back_for_any_victim):
            self._next -= 1
        if num_tokens:
            self.budget += num_tokens
            if victim in self.chunks:
                self.chunks.remove(victim)
        return num_tokens > 0

    def _take_back(self, victim: VllmRequest) -> int:
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

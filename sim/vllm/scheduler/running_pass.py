"""The first half of a vLLM step: who of the running requests gets tokens (rules 2 to 4).

They are gone through one by one, in order of admission, until the budget is spent. Where blocks run
short, one of them is preempted, until they suffice or the request that needs them is the victim.
"""

from collections.abc import Callable
from typing import NamedTuple

from sim.vllm.cache.manager import BlockManager
from sim.vllm.config import VllmConfig
from sim.vllm.request import VllmBatch, VllmRequest


class Preemption(NamedTuple):
    """Who needed blocks, whose were taken, and whether the victim had been scheduled before."""

    by: VllmRequest
    victim: VllmRequest
    was_scheduled: bool


Preempt = Callable[[Preemption], None]

# Preemptions of one request.
_PATIENCE = 100


class RunningPass:
    """One pass over the running requests.

    Attributes:
        budget: tokens of the step that are left.
        chunks: scheduled requests whose prompts go on, in order.
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
    ) -> None:
        """Prepare a pass.

        Args:
            config: the settings.
            kv: where blocks come from.
            running: those of the running requests that decode.
            admitted: all running requests, in order of admission; victims are taken out of it.
            prefilling: those of them whose prompts go on, in the same order.
            preempt: takes what a victim has, all but its place in `admitted`.
        """
        self._admitted = admitted
        self._prefilling = prefilling
        self._preempt = preempt
        self._config = config
        self._kv = kv
        self._running = running
        self._by_priority = config.scheduling_policy == "priority"
        self._next = 0
        self._all_rows = False
        self._num_tokens: dict[VllmRequest, int] = {}
        self.budget = config.max_num_batched_tokens
        self.chunks: list[VllmRequest] = []

    def run(self) -> None:
        """Go through the running requests."""
        self._decode_all()
        while self._next < len(self._admitted) and self.budget > 0:
            request = self._admitted[self._next]
            if request.in_running_batch:
                is_scheduled = self._decode(request)
            elif request.extend_end < request.fill_len:
                is_scheduled = self._go_on(request)
            else:
                is_scheduled = True  # the token that ends it is in flight (rule 12)
            if not is_scheduled:
                return
            self._next += 1

    def _decode_all(self) -> None:
        """Give all rows their tokens at once, if there are blocks and nobody else comes before."""
        num_blocks, num_others = self._running.num_new_pages, len(self._prefilling)
        first = len(self._admitted) - num_others
        if num_blocks > self._kv.num_free_pages or self._admitted[first:] != self._prefilling:
            return
        self._kv.promise_pages(num_blocks)
        self.budget -= len(self._running)
        self._all_rows = True
        self._next = first

    @property
    def passed_over(self) -> list[VllmRequest]:
        """The rows that get nothing."""
        if self._all_rows:
            return []
        return [row for row in self._running.requests if row not in self._num_tokens]

    def _decode(self, request: VllmRequest) -> bool:
        """Give a row its token; False: it was preempted."""
        num_missing = int(request.seq_len % self._kv.page_size == 0)
        if not self._make_room(num_missing, request):
            return False
        self._kv.promise_pages(num_missing)
        self._spend(request, 1)
        return True

    def _go_on(self, request: VllmRequest) -> bool:
        """Give a prompt its next chunk; False: the request was preempted."""
        num_left = request.fill_len - request.extend_end
        num_tokens = step_tokens(self._config, num_left, self.budget)
        end = request.extend_end + num_tokens
        if not self._make_room(self._kv.num_missing(request.kv, end), request):
            return False
        self._kv.grow(request.kv, end)
        request.chunk_computed()
        request.take_chunk(end)
        request.seq_len = end
        self.chunks.append(request)
        self._spend(request, num_tokens)
        return True

    def _spend(self, request: VllmRequest, num_tokens: int) -> None:
        self._num_tokens[request] = num_tokens
        self.budget -= num_tokens

    def _make_room(self, num_blocks: int, request: VllmRequest) -> bool:
        """Preempt until so many blocks are free; False: that took the request itself."""
        while num_blocks > self._kv.num_free_pages:
            victim = self._choose_victim()
            self._preempt(Preemption(request, victim, self._take_out(victim)))
            if victim is request:
                return False
        return True

    def _choose_victim(self) -> VllmRequest:
        """The one admitted last, or of those with the largest priority value the last to arrive."""
        if not self._by_priority:
            return self._admitted[-1]
        return max(self._admitted, key=_worth_little)

    def _take_out(self, victim: VllmRequest) -> bool:
        """Take a victim out, and back what it was given in this pass; True if it was given any.

        Only then vLLM moves its place in the list back: after a victim that was passed over, the
        request behind the current one is passed over, too.
        """
        self._admitted.remove(victim)
        num_tokens = self._num_tokens.pop(victim, int(self._all_rows and victim.in_running_batch))
        if num_tokens:
            self.budget += num_tokens
            self._next -= 1
            if victim in self.chunks:
                self.chunks.remove(victim)
        return num_tokens > 0


def _worth_little(request: VllmRequest) -> tuple[int, int, int]:
    """By priority value and arrival; of equals, the one admitted first.

    Two that arrived at the same instant could preempt one another for ever, the one admitted last
    being spared each time. vLLM's clock tells any two apart: those that were put back again and
    again go by their order of entering.
    """
    is_stuck = request.preemptions >= _PATIENCE
    return request.priority, request.spec.arrival_ns, request.entry if is_stuck else 0


def step_tokens(config: VllmConfig, num_left: int, budget: int) -> int:
    """Of so many tokens that a request has left, those it may compute in this step."""
    threshold = config.long_prefill_token_threshold
    if 0 < threshold < num_left:
        num_left = threshold
    return min(num_left, budget)

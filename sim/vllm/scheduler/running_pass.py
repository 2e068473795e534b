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

from sim.vllm.cache.manager import BlockManager
from sim.vllm.config import VllmConfig
from sim.vllm.request import VllmBatch, VllmRequest
from sim.vllm.scheduler.preempting_pass import Preempt, PreemptingPass
from sim.vllm.scheduler.step_limits import PromptLimits, chunk_tokens


class RunningPass(PreemptingPass):
    """One pass over the running requests."""

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
        super().__init__(
            config,
            memory=kv,
            admitted=admitted,
            preempt=preempt,
            limits=limits,
            budget=config.max_num_batched_tokens,
        )
        self._prefilling = prefilling
        self._kv = kv
        self._running = running
        self._decoded_all = False

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

    def _take_back(self, victim: VllmRequest) -> int:
        decoded = self._decoded_all and victim.lockstep is self._running
        return self._num_tokens.pop(victim, int(decoded))

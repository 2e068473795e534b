"""The running requests of a step in lockstep: usually all decode rows get their tokens at once."""

from sim.vllm.cache.manager import BlockManager
from sim.vllm.config import VllmConfig
from sim.vllm.request import VllmBatch, VllmRequest
from sim.vllm.scheduler.running_pass import Preempt, RunningPass
from sim.vllm.scheduler.step_limits import PromptLimits, chunk_tokens


class LockstepPass(RunningPass[VllmRequest]):
    """One pass over the running requests; a decode row gets one token."""

    def __init__(
        self,
        config: VllmConfig,
        *,
        kv: BlockManager,
        running: VllmBatch,
        admitted: list[VllmRequest],
        prefilling: list[VllmRequest],
        preempt: Preempt[VllmRequest],
        limits: PromptLimits,
    ) -> None:
        """Prepare a pass.

        Args:
            config: the settings.
            kv: the blocks.
            running: the running requests that decode.
            admitted: all running requests, in order of admission; the pass removes victims from it.
            prefilling: the running requests with more chunks to come, in the same order.
            preempt: see `Preempt`.
            limits: what limits the prompts of this step.
        """
        budget = config.max_num_batched_tokens
        super().__init__(
            config, memory=kv, admitted=admitted, preempt=preempt, limits=limits, budget=budget
        )
        self._prefilling = prefilling
        self._kv = kv
        self._running = running
        self._decoded_all = False

    def run(self) -> None:
        self._decode_all()
        super().run()

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

    def _visit(self, request: VllmRequest) -> bool:
        if request.lockstep is self._running:
            return self._decode(request)
        if request.lockstep is None and request.is_prefilling:
            return self._limits.are_deferred or self._continue_prefill(request)
        # Its last token is in flight, so it needs none (rule 12).
        return True

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
        self._take_chunk(request, end)
        request.seq_len = end
        self._spend(request, num_tokens)
        return True

    def _take_back(self, victim: VllmRequest) -> int:
        decoded = self._decoded_all and victim.lockstep is self._running
        return self._num_tokens.pop(victim, int(decoded))

"""The running requests of a step that is decided row by row, with or without draft tokens.

A decode row wants its last known token and all its draft tokens. What the budget leaves decides how
many of the drafts it gets. A drafter that computes KV of its own needs places for it behind the
row's tokens; vLLM calls them lookahead. Under async scheduling, places for the tokens in flight
were given before; they are taken back when the target model rejects them.

vLLM 0.19.0 and 0.33.0: `Scheduler.schedule`, first loop (v1/core/sched/scheduler.py).
"""

from sim.vllm.cache.memory import BlockMemory, Chunk
from sim.vllm.config import VllmConfig
from sim.vllm.request import RowRequest
from sim.vllm.scheduler.drafting import Drafting
from sim.vllm.scheduler.running_pass import Preempt, RunningPass
from sim.vllm.scheduler.step_limits import PromptLimits, chunk_tokens


class RowPass(RunningPass[RowRequest]):
    """One pass over the running requests.

    Attributes:
        rows: requests that decode in this step, in order.
        num_drafts: by request that decodes, the draft tokens that the step verifies.
    """

    def __init__(
        self,
        config: VllmConfig,
        *,
        drafting: Drafting,
        kv: BlockMemory,
        admitted: list[RowRequest],
        preempt: Preempt[RowRequest],
        limits: PromptLimits,
        number: int,
    ) -> None:
        """Prepare a pass.

        Args:
            config: the settings.
            drafting: what the method of drafting asks for.
            kv: the blocks.
            admitted: all running requests, in order of admission; the pass removes victims from it.
            preempt: see `Preempt`.
            limits: what limits the prompts of this step.
            number: number of the decision, from 1.
        """
        budget = drafting.step_tokens
        super().__init__(
            config, memory=kv, admitted=admitted, preempt=preempt, limits=limits, budget=budget
        )
        self._row_slots = drafting.row_slots
        self._lookahead = drafting.lookahead
        self._number = number
        self._longest = config.max_model_len
        self.rows: list[RowRequest] = []
        self.num_drafts: dict[RowRequest, int] = {}

    def _visit(self, request: RowRequest) -> bool:
        num_tokens = self._num_wanted(request)
        return num_tokens <= 0 or self._schedule(request, num_tokens)

    def _num_wanted(self, request: RowRequest) -> int:
        """How many tokens a request gets if there are blocks for them."""
        num_computed, num_in_flight = request.seq_len, request.num_placeholders
        longest = request.prompt_len + request.spec.max_new_tokens
        if num_in_flight > 0 and num_computed + 2 - num_in_flight >= longest:
            return 0  # a token in flight is its last one, even if all drafts are rejected
        if self._number < request.next_decode_step:
            return 0  # the stages of a pipeline do not know its last token yet
        if self._limits.are_deferred and request.is_prefilling:
            return 0
        num_tokens = request.num_tokens + request.num_drafts + num_in_flight - num_computed
        budget = self.budget - self._row_slots
        num_tokens = chunk_tokens(num_tokens, self._limits.largest_chunk, budget)
        num_tokens = min(num_tokens, self._longest - 1 - num_computed)
        aligned = self._limits.aligned
        if aligned is None or num_tokens <= 0:
            return num_tokens
        tables = request.kv.tables
        junction = 0 if tables is None else tables.junction
        return aligned.num_tokens(request, num_computed, num_tokens, junction)

    def _schedule(self, request: RowRequest, num_tokens: int) -> bool:
        """Give a request its tokens; False: it was preempted."""
        kv, num_computed = self._memory, request.seq_len
        end = num_computed + num_tokens
        num_processed = num_computed
        if self._rules.keeps_blocks_in_flight:
            num_processed -= request.num_in_flight
        kv.drop_skipped(request.kv, num_processed)
        num_places = min(end + self._lookahead, self._longest)
        prefill_end = max(request.prompt_len, request.num_tokens - 1)
        chunk = Chunk(num_computed, num_places, prefill_end)
        if not self._make_room(kv.num_lacking(request.kv, chunk), request):
            return False
        kv.allocate(request.kv, chunk)
        kv.note_full(request.kv, end, request.num_tokens)
        if request.is_prefilling:
            self._take_chunk(request, end)
            request.padding = 0
        else:
            self.rows.append(request)
            self.num_drafts[request] = min(num_tokens - 1, request.num_drafts)
        request.num_drafts = 0
        request.seq_len = end
        self._spend(request, num_tokens + self._row_slots)
        return True

    def _remove_victim(self, victim: RowRequest) -> bool:
        was_scheduled = super()._remove_victim(victim)
        self.rows = [row for row in self.rows if row is not victim]
        return was_scheduled

"""A request on a vLLM server: the state that other families do not have."""

from sim.core.request import RequestSpec
from sim.engine.records import Decision, Launch
from sim.engine.request import Request
from sim.engine.running_batch import RunningBatch
from sim.vllm.cache.request_blocks import RequestBlocks


class VllmRequest(Request):
    """A request on a vLLM server.

    `seq_len` is vLLM's `num_computed_tokens`: it counts on all draft tokens in flight. The counters
    from `num_drafts` on are kept for requests that are decided row by row. While a request is in
    the running batch, they follow from its counters (`sim.vllm.scheduler.decode_rows`).

    Attributes:
        kv: its tokens and its block tables.
        entry: number of its entry into the waiting queue, counted over all requests.
        admission: number of its latest admission, counted over all requests.
        fill_len: tokens that must be computed before it decodes, set at its admission.
        pulls: on a decode server: the KV of its prompt is to be fetched.
        num_drafts: draft tokens that its next decode row may verify.
        num_placeholders: under async scheduling, tokens in flight whose values are not known yet,
            draft tokens included (vLLM's `num_output_placeholders`).
        num_in_flight: tokens that the steps in flight compute for it.
        num_stale: those of them that were in flight when it was preempted.
        num_samples: steps in flight that give it a token.
        next_decode_step: under async scheduling, the number of the decision from which on it may
            decode again (vLLM's `next_decode_eligible_step`).
        padding: tokens of its current prefill step that stand for drafts.
    """

    __slots__ = (
        "admission",
        "entry",
        "fill_len",
        "kv",
        "next_decode_step",
        "num_drafts",
        "num_in_flight",
        "num_placeholders",
        "num_samples",
        "num_stale",
        "padding",
        "pulls",
    )

    def __init__(self, spec: RequestSpec, kv: RequestBlocks, *, limit: int) -> None:
        super().__init__(spec, limit=limit, priority=spec.priority or 0)
        self.kv = kv
        self.entry = self.admission = self.fill_len = 0
        self.pulls = False
        self.num_drafts = self.num_placeholders = self.num_samples = self.next_decode_step = 0
        self.num_in_flight = self.num_stale = self.padding = 0

    @property
    def is_prefilling(self) -> bool:
        """Some of the prompt, or of the output before a preemption, still has to be computed."""
        return self.extend_end < self.fill_len

    @property
    def prefill_end(self) -> int:
        """Where its prompt ends, or its output before a preemption."""
        return max(self.prompt_len, self.num_tokens - 1)

    def result_came(self, num_tokens: int) -> bool:
        """A step with `num_tokens` tokens of it ended; whether it was preempted since."""
        self.num_in_flight -= num_tokens
        if self.num_stale <= 0:
            return False
        self.num_stale -= num_tokens
        return True


VllmBatch = RunningBatch[VllmRequest]
VllmLaunch = Launch[VllmRequest]
VllmDecision = Decision[VllmRequest]

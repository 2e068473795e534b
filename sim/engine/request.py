"""The scheduler's state of a request."""

from sim.core.request import RequestSpec, Status
from sim.sglang.cache.request_kv import RequestKV

NEVER_NS = -1


class Request:
    """One request on one server. Mutable; owned by the scheduler and its engine.

    While a request is in the running batch, `seq_len` and `num_generated` are kept there, relative
    to its counters (see RunningBatch), and the attributes here are stale.

    Attributes:
        max_new_tokens: the client's limit, clipped to context and pool (rule 1).
        priority: the client's, or what the family has for none (rule 9).
        entry: place in order of entering the queue; a new one after each retraction.
        admission: place in order of admission, a new one after each preemption; vLLM's only.
        entry_tokens: prefill tokens the server had computed then.
        num_generated: output tokens known.
        seq_len: tokens whose KV is allocated.
        prefix_len: tokens cached or computed before this prefill step.
        extend_end: where this prefill step ends.
        loaded_len: tokens before this prefill step that it brings back from host memory.
        fill_len: tokens to prefill, as of the last try to admit the request; 0 before.
        matched_len: cached tokens, those in host memory too, as the policy last saw them.
        is_aged: it has waited so long that it goes first (rules against starvation), now or before.
        may_overdraw: it may be admitted against the soft reservations.
        first_pass: number of the first pass it waited for, where a rule counts them; else -1.
        length_due: kept by the running batch: its steps done when the limit is reached, -1 outside.
    """

    __slots__ = (
        "admission",
        "cached_tokens",
        "clocked_ns",
        "entry",
        "entry_tokens",
        "extend_end",
        "fill_len",
        "finish_ns",
        "first_pass",
        "first_token_ns",
        "generated_base",
        "host_cached_tokens",
        "in_running_batch",
        "is_aged",
        "is_clocked",
        "kv",
        "length_due",
        "loaded_len",
        "matched_len",
        "max_new_tokens",
        "may_overdraw",
        "num_generated",
        "preemptions",
        "prefix_len",
        "priority",
        "prompt_len",
        "retractions",
        "scheduled_ns",
        "seq_base",
        "seq_len",
        "spec",
        "status",
    )

    def __init__(self, spec: RequestSpec, kv: RequestKV, *, prompt_len: int, limit: int) -> None:
        self.spec = spec
        self.kv = kv
        self.prompt_len = prompt_len
        self.max_new_tokens = limit
        self.priority = 0 if spec.priority is None else spec.priority
        self.status = Status.WAITING
        self.entry = self.entry_tokens = self.admission = 0
        self.num_generated = self.seq_len = 0
        self.prefix_len = self.extend_end = self.fill_len = self.matched_len = 0
        self.seq_base = self.generated_base = self.length_due = 0
        self.retractions = self.preemptions = 0
        self.cached_tokens = self.host_cached_tokens = self.loaded_len = 0
        self.scheduled_ns = self.first_token_ns = self.finish_ns = NEVER_NS
        self.clocked_ns = NEVER_NS
        self.is_clocked = False
        self.in_running_batch = False
        self.is_aged = self.may_overdraw = False
        self.first_pass = -1

    @property
    def rid(self) -> str:
        return self.spec.rid

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens, of a request that is not in the running batch."""
        return self.prompt_len + self.num_generated

    @property
    def extend_len(self) -> int:
        return self.extend_end - self.prefix_len

"""What SGLang's scheduler keeps about a request besides what every family keeps."""

from sim.core.request import RequestSpec
from sim.engine.launch import Decision, Launch
from sim.engine.request import Request
from sim.engine.running_batch import RunningBatch
from sim.sglang.cache.manager import RequestKV


class SglangRequest(Request):
    """A request on an SGLang server.

    Attributes:
        kv: its tokens, and its share of the KV cache.
        entry: its place in order of entering the queue; a new one after each retraction.
        entry_tokens: prefill tokens that the server had computed when it entered.
        fill_len: tokens to prefill, as of the last try to admit it; 0 before.
        matched_len: cached tokens, those in host memory too, as the policy last saw them.
        may_overdraw: it may be admitted against the soft reservations of running requests.
        first_pass: number of the first pass it waited for, where a fairness rule counts passes;
            else -1.
    """

    __slots__ = (
        "entry",
        "entry_tokens",
        "fill_len",
        "first_pass",
        "kv",
        "matched_len",
        "may_overdraw",
    )

    def __init__(
        self, spec: RequestSpec, kv: RequestKV, *, limit: int, priority: int | None = None
    ) -> None:
        """`priority`: what it counts as without one of its own; None: 0."""
        own = spec.priority if spec.priority is not None else priority
        super().__init__(spec, limit=limit, priority=own or 0)
        self.kv = kv
        self.entry = self.entry_tokens = 0
        self.fill_len = self.matched_len = 0
        self.may_overdraw = False
        self.first_pass = -1


SglangBatch = RunningBatch[SglangRequest]
SglangLaunch = Launch[SglangRequest]
SglangDecision = Decision[SglangRequest]

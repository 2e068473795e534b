"""A request on an SGLang server: the state that other families do not have."""

from sim.core.request import RequestSpec
from sim.engine.request import Request
from sim.engine.running_batch import RunningBatch
from sim.engine.scheduler import Decision, Launch
from sim.sglang.cache.manager import RequestKV


class SglangRequest(Request):
    """A request on an SGLang server.

    Attributes:
        kv: its tokens and its KV pages.
        entry: number of its latest entry into the queue; entries of all requests are counted.
        entered_ns: when that was.
        entry_tokens: the server's counter of processed prefill tokens at its entry (policy hrrn).
        fill_len: tokens to prefill, set by each try to admit it; 0 before the first.
        matched_len: cached tokens at the last match, those in host memory included.
        may_overdraw: admission may ignore what is reserved for running requests' outputs; set by
            the fairness rule.
        first_pass: number of the first pass in which it waited; -1: no fairness rule has set it.
    """

    __slots__ = (
        "entered_ns",
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
        """`priority`: its priority if the client gave none; None: 0."""
        own = spec.priority if spec.priority is not None else priority
        super().__init__(spec, limit=limit, priority=own or 0)
        self.kv = kv
        self.entry = self.entry_tokens = self.entered_ns = 0
        self.fill_len = self.matched_len = 0
        self.may_overdraw = False
        self.first_pass = -1


SglangBatch = RunningBatch[SglangRequest]
SglangLaunch = Launch[SglangRequest]
SglangDecision = Decision[SglangRequest]

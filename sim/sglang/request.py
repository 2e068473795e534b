"""A request on an SGLang server: the state that other families do not have."""

from sim.core.request import RequestSpec
from sim.engine.records import Decision, Launch
from sim.engine.request import Request
from sim.engine.running_batch import RunningBatch
from sim.sglang.cache.request_kv import RequestKV


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
        num_computed: with drafts: tokens whose KV is computed, as far as results are known: the
            prompt's, and all accepted ones.
        in_mixed_step: with drafts: the last result of the request came from a mixed step. That
            result's token counts as computed, too, but not if the request has ended with it.
        is_given_up: the request's client has given up, or it has waited or run for too long.
    """

    __slots__ = (
        "entered_ns",
        "entry",
        "entry_tokens",
        "fill_len",
        "first_pass",
        "in_mixed_step",
        "is_given_up",
        "kv",
        "matched_len",
        "may_overdraw",
        "num_computed",
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
        self.num_computed = 0
        self.in_mixed_step = self.is_given_up = False


SglangBatch = RunningBatch[SglangRequest]
SglangLaunch = Launch[SglangRequest]
SglangDecision = Decision[SglangRequest]

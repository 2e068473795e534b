"""A request on an SGLang server: the state that other families do not have, and its KV."""

from sim.core.request import RequestSpec
from sim.core.tokens import Prompt
from sim.engine.page_pool import Span
from sim.engine.records import Decision, Launch
from sim.engine.request import OutputTokens, Request, RequestTokens
from sim.engine.running_batch import RunningBatch
from sim.sglang.cache.tree.radix_node import RadixNode
from sim.sglang.cache.tree.radix_tree import Turn


class WindowSlot:
    """A request's KV in the pool of layers with sliding windows.

    Attributes:
        window_from: KV of the tokens before this position was freed in the window pool, as far as
            it was the request's own.
        lock_start: where the tokens begin whose KV in the window pool is locked.
        branch_len: layers without a window could use this many cached tokens, which is more than
            the prefix found; 0: they could use no more.
        num_chunks: prefill steps since its admission.
        branches: the insertion under way ends at `branch_len`.
    """

    __slots__ = ("branch_len", "branches", "lock_start", "num_chunks", "window_from")

    def __init__(self) -> None:
        self.window_from = self.lock_start = self.branch_len = self.num_chunks = 0
        self.branches = False


class StateSlot:
    """A request's states of layers that keep one state for all tokens before.

    Attributes:
        branch_len: where its prompt leaves a cached path that had KV, but no state there; 0: it
            does not, or no state can be tracked there.
        tracked_len: tokens before the latest state that it has tracked; 0: it has tracked none
            since the cache took one.
        is_unlocked: the state at the end of the locked prefix is not protected any more.
        earlier_len: with drafts, tokens before the state that it has tracked before the latest.
        verified_len: with drafts, tokens that were computed after its last step that verified some.
        prefilled_len: where its last prefill step ended.
        untracked: tokens after which a decode step would have tracked a state, but was a mixed one.
        ended_len: tokens before the one that ended it; 0: it runs.
        for_load: a state that the request has got for the load under way.
        spare: a state for the insertion that is under way: the cache takes one of the request's.
        took: that insertion has given the cache a state.
    """

    __slots__ = (
        "branch_len",
        "earlier_len",
        "ended_len",
        "for_load",
        "is_unlocked",
        "num_states",
        "prefilled_len",
        "spare",
        "took",
        "tracked_len",
        "untracked",
        "verified_len",
    )

    def __init__(self) -> None:
        self.num_states = self.branch_len = self.tracked_len = self.prefilled_len = 0
        self.ended_len = self.earlier_len = self.verified_len = 0
        self.untracked: list[int] = []
        self.spare = self.took = self.for_load = self.is_unlocked = False


class RequestKV(RequestTokens):
    """The tokens and pages of one request. Mutable; owned by the KVCacheManager.

    The KV of the tokens [0, protected_len) is in pages of the prefix cache, that of the tokens
    [protected_len, seq_len) in the request's own pages.

    Attributes:
        found: node on the device at which the last match ended; the next match starts there.
        found_on_host: the node at which the last match would end after a load; None: it found
            nothing to load.
        host_len: tokens after those on the device that the last match found in host memory; they
            may be loaded by now.
        host_window_len: tokens of the window pool that the last match found in host memory alone.
        load_tokens: how many tokens of all layers take as long as the latest load.
        locked: the request protects the path to this node from eviction; None: it has no KV.
        protected_len: tokens in pages of the cache; a multiple of the page size.
        counted_len: tokens for which the cache has counted a use by this request.
        pages: the request's own pages, without those that are only reserved (for decode steps).
        priority: the request's, for eviction policy `priority`.
        window: set where there is a window pool; otherwise never.
        state: set where there is a pool of states; otherwise never.
        start: where the first match starts; None: at the root.
        turn: where it is in a conversation; None: it is in none.
    """

    window: WindowSlot
    state: StateSlot

    __slots__ = (
        "counted_len",
        "found",
        "found_on_host",
        "host_len",
        "host_window_len",
        "load_tokens",
        "locked",
        "pages",
        "priority",
        "protected_len",
        "start",
        "state",
        "turn",
        "window",
    )

    def __init__(self, prompt: Prompt, outputs: OutputTokens, no_pages: Span) -> None:
        """A request without KV; `no_pages` is an empty span."""
        super().__init__(prompt, outputs)
        self.found: RadixNode | None = None
        self.found_on_host: RadixNode | None = None
        self.host_len = self.host_window_len = 0
        self.load_tokens = 0.0
        self.locked: RadixNode | None = None
        self.protected_len = self.counted_len = 0
        self.pages = no_pages
        self.priority = 0
        self.turn: Turn | None = None
        self.start: RadixNode | None = None


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
        looked_up_len: cached tokens when the store was last asked for those that follow them.
        num_lookups: how often it was asked again, in place of an admission or after a miss.
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
        "looked_up_len",
        "matched_len",
        "may_overdraw",
        "num_computed",
        "num_lookups",
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
        self.looked_up_len = self.num_lookups = 0
        self.in_mixed_step = self.is_given_up = False


SglangBatch = RunningBatch[SglangRequest]
SglangLaunch = Launch[SglangRequest]
SglangDecision = Decision[SglangRequest]

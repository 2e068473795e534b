"""What a part adds to the KV memory: the moments at which it is told something, or asked.

The KV memory is the pages of layers with full attention, their prefix cache, and parts: the pool of
layers with sliding windows, the pool of states, host memory. A part has its rules, what it counts
for the whole server, and a slot with what it keeps of each request. `KVCacheManager` tells every
part every moment; a method that a part leaves out does nothing.
"""

from collections.abc import Sequence

from sim.engine.decode_run import PageDemand
from sim.engine.page_pool import CacheListener
from sim.sglang.cache.host.tree import HostTree
from sim.sglang.cache.pool_tree import PoolTree, UnitPool
from sim.sglang.cache.preallocation import Preallocation, Reserve, WindowBudget
from sim.sglang.cache.tree.radix_node import PrefixMatch, RadixNode
from sim.sglang.request import RequestKV, SglangRequest

# Rows of a prefill step: KV, tokens of the prefix, tokens to compute.
PrefillRows = Sequence[tuple[RequestKV, int, int]]


class MemoryPart:
    """Base class of parts of the KV memory.

    Attributes:
        pool: the part's own pool on the device; None: it has none.
        tree: what the prefix cache knows of that pool; None: nothing.
        host: what keeps evicted nodes in host memory; None: the part does not.
        limits_passes: whether `new_pass_limit` returns a limit.
    """

    def __init__(
        self,
        pool: UnitPool | None = None,
        tree: PoolTree | None = None,
        host: HostTree | None = None,
    ) -> None:
        self.pool = pool
        self.tree = tree
        self.host = host
        self.limits_passes = False

    def listen(self, listener: CacheListener) -> None:
        """Tell a listener from now on which pages are in host memory, which is empty now."""

    # ---- requests ------------------------------------------------------------------------------

    def join(self, kv: RequestKV) -> None:
        """Give a new request its slot."""

    def found(self, kv: RequestKV, match: PrefixMatch) -> None:
        """The request's prefix was found, and marked as used; it ends at `kv.found`."""

    def prepare(self, kv: RequestKV) -> None:
        """The request is a candidate of a pass, and is about to be judged."""

    def refuse(self, kv: RequestKV) -> None:
        """The candidate was not admitted."""

    def begin_load(self, kv: RequestKV, end: RadixNode) -> None:
        """What the request needs of the prefix up to this node is about to be loaded."""

    def load(self, end: RadixNode) -> float | None:
        """Load what the prefix up to this node needs from host memory.

        Returns how many tokens of all layers take as long to load; None: nothing was loaded.
        """
        return None

    def end_load(self, kv: RequestKV, end: RadixNode, *, is_loaded: bool) -> None:
        """The load has begun, or there is none."""

    def lock(self, kv: RequestKV) -> None:
        """The path to `kv.locked` is locked now."""

    def unlock(self, kv: RequestKV) -> None:
        """The path to `kv.locked` is about to be unlocked."""

    def end(self, request: SglangRequest) -> None:
        """The request's last token is known; its memory is given back next."""

    def release(self, kv: RequestKV, seq_len: int) -> None:
        """The request gives back all that it has; `seq_len` tokens have KV."""

    def num_held(self, kv: RequestKV, seq_len: int) -> int:
        """Units of the part's pool that the request has of its own.

        Raises InvariantError: it should have more or fewer.
        """
        return 0

    # ---- growth --------------------------------------------------------------------------------

    def used_share(self) -> float:
        """Share of the part's pool in use that cannot be evicted."""
        return 0.0

    def evict_until_free(self, num_tokens: int) -> bool:
        """Evict until the part's pool has free units for `num_tokens` new tokens.

        Returns False if it has too few even then.
        """
        return True

    def begin_extend(self, rows: PrefillRows) -> None:
        """The rows are about to get pages."""

    def extended(self, rows: PrefillRows) -> None:
        """The rows have got their pages."""

    def reserved(self, num_pages: int) -> None:
        """`num_pages` pages were reserved for the new tokens of decode steps."""

    def begin_decode(self, rows: Sequence[SglangRequest]) -> None:
        """The rows are about to get memory for a decode step."""

    def decoded_again(
        self, rows: Sequence[SglangRequest], num_steps: int, *, overlaps: bool
    ) -> None:
        """As in `KVCacheManager`."""

    def mixed(self, rows: Sequence[SglangRequest]) -> None:
        """The rows decode in a step that prefills, too."""

    def verified(self, kv: RequestKV, num_computed: int, num_sampled: int) -> None:
        """As in `KVCacheManager`."""

    def num_affordable_steps(self, num_steps: int, demand: PageDemand) -> int:
        """How many of the next decode steps, at most `num_steps`, have memory and evict nothing."""
        return num_steps

    # ---- prompts that are computed elsewhere ----------------------------------------------------

    def preallocation(self, reserve: Reserve) -> Preallocation | None:
        """The limits of the part's pool for them; None: it sets none."""
        return None

    def can_hold(self, kv: RequestKV) -> bool:
        """Evict until the part can give the request what every request has; False: it cannot."""
        return True

    def locked_for_transfer(self, kv: RequestKV) -> None:
        """The request's prefix is locked, and what follows it comes from another server."""

    def allocated(self, kv: RequestKV, end: int) -> None:
        """The request has pages now for its first `end` tokens, which come from elsewhere."""

    def received(self, kv: RequestKV) -> None:
        """All of these tokens have KV: the request decodes from now on."""

    # ---- insertions into the prefix cache --------------------------------------------------------

    def end_of_insertion(self, kv: RequestKV, num_tokens: int, *, is_finished: bool) -> int:
        """How many of the request's first tokens the cache may get; `num_tokens` are computed."""
        return num_tokens

    def begin_insertion(self, kv: RequestKV, num_tokens: int, *, is_finished: bool) -> None:
        """The whole pages of the first `num_tokens` tokens are about to be inserted.

        If there is no whole page, nothing is inserted.
        """

    def inserted(self, kv: RequestKV, node: RadixNode, *, is_new: bool) -> None:
        """The insertion has ended at `node`; `is_new`: the insertion has made this node."""

    def end_insertion(self, kv: RequestKV, num_tokens: int, *, is_finished: bool) -> None:
        """The request's lock has moved to the node inserted, or nothing was inserted.

        `num_tokens` is the number of computed tokens, as far as the cache compares them.
        """

    # ---- decisions -----------------------------------------------------------------------------

    def begin_decision(self, now_ns: int, device_free_ns: int) -> None:
        """As in `KVCacheManager`."""

    def end_decision(self) -> int:
        """As in `KVCacheManager`."""
        return 0

    def next_change_ns(self, now_ns: int) -> int | None:
        """When a decision may find the part changed by itself; None: it stays as it is."""
        return None

    def is_copying(self) -> bool:
        """Whether the part makes copies, or is to make some, so that the server is not idle."""
        return False

    def begin_prefill(self) -> None:
        """A prefill batch is about to be launched."""

    def host_used_tokens(self) -> int | None:
        """Tokens in host memory; None: the part keeps none there."""
        return None

    # ---- passes --------------------------------------------------------------------------------

    def new_pass_limit(self) -> WindowBudget | None:
        """What a pass may use of the part's pool; None: no pass is limited by it."""
        return None

    def error_if_full(self) -> Exception | None:
        """The error if no room can be made although admission counted on it.

        None: SGLang has no such case, so it is a defect of the simulator.
        """
        return None

    def error_if_stuck(self, request: SglangRequest) -> Exception | None:
        """The error if the request does not fit although nothing runs; None: as above."""
        return None

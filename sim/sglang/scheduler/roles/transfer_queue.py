"""The transfer queue of a decode server: requests that hold KV and whose KV is on its way.

Meanwhile the server loads what its host memory has of their prefixes. Source: SGLang 0.5.23,
`DecodeTransferQueue` in disaggregation/decode.py; `DecodeHiCachePreallocMixin` and
`DecodeHiCacheTransferMixin` in disaggregation/decode_hicache_mixin.py.
docs/explanation/disaggregation.md has the rules.
"""

from collections.abc import Collection, Iterable, Sequence

from sim.sglang.cache.host.tree import HostTree
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.cache.tree.prefix_cache import PathLock
from sim.sglang.cache.tree.radix_node import RadixNode
from sim.sglang.request import SglangRequest
from sim.sglang.scheduler.server import SglangServer


class Restore:
    """A prefix that was found for a request, of which host memory may have a part.

    Attributes:
        num_tokens: tokens of the prefix; the prefill server does not send them.
        num_missing: those of them that were not on the device.
        loaded: once they are, or are being loaded: the node at the prefix's end, and its lock.
        ready_ns: when the load ends that the request waits for; None: its turn has not come.
        is_ready: a pass has found that this load has ended.
        has_failed: the prefix is lost.
    """

    __slots__ = ("has_failed", "is_ready", "loaded", "num_missing", "num_tokens", "ready_ns")

    def __init__(self, num_tokens: int, num_missing: int) -> None:
        self.num_tokens = num_tokens
        self.num_missing = num_missing
        self.loaded: tuple[RadixNode, PathLock] | None = None
        self.ready_ns: int | None = None
        self.is_ready = self.has_failed = False


class HostRestores:
    """The prefixes of all requests in the transfer queue.

    From its preallocation on, what a request lacks is only counted: admission leaves memory for it.
    The next pass that looks at transfers loads it, and from then on the request holds it. Meanwhile
    host memory may have dropped it; then the request fails when its transfer ends. All that one
    pass loads is one copy, and SGLang can follow three of them at a time.

    A request whose prefix is on the device waits, too, for the latest load that has begun: another
    request may have begun to load these tokens.

    Attributes:
        has_begun_some: the latest pass has found the turn of a request.
    """

    def __init__(self, kv: KVCacheManager, host: HostTree) -> None:
        self.has_begun_some = False
        self._kv = kv
        self._tree = host.tree
        self._copies = host.transfers
        self._storage = kv.storage
        self._restores: dict[str, Restore] = {}
        # What was loaded since the latest launch: rids, and tokens.
        self._loaded: list[tuple[str, int]] = []

    # ---- preallocation -------------------------------------------------------------------------

    @property
    def rids(self) -> list[str]:
        """The requests, in the order of their preallocation."""
        return list(self._restores)

    @property
    def num_to_load(self) -> int:
        """Tokens for which admission leaves memory: those whose load has not begun."""
        return sum([each.num_missing for each in self._restores.values() if each.loaded is None])

    def begin(self, request: SglangRequest, num_cached: int) -> int:
        """A request is about to get memory; the device has its first `num_cached` tokens.

        Returns how many tokens were found in all, here and in the store.
        """
        num_missing = request.kv.host_len
        if self._storage is not None:
            found = num_cached + num_missing
            num_missing += self._storage.fetch_for_transfer(request, found)
        self._restores[request.rid] = Restore(num_cached + num_missing, num_missing)
        return num_cached + num_missing

    # ---- the transfer queue ----------------------------------------------------------------------

    def begin_pass(self) -> None:
        self.has_begun_some = False

    def advance(self, transferring: Sequence[SglangRequest], now_ns: int) -> None:
        """`_process_hicache_local_restores`: load what these requests lack, if it is their turn."""
        # Before anything is loaded: the scheduler may wait for copies of what is evicted for it.
        self._note_ready(self._restores.values())
        if not (self.waits_for_turn and self._copies.may_start_loads):
            return
        begun: list[Restore] = []
        for request in transferring:
            restore = self._restores[request.rid]
            if restore.ready_ns is None and not restore.has_failed:
                if self._storage is not None and self._storage.holds_back(request, now_ns):
                    continue
                self.has_begun_some = True
                if not restore.num_missing or self._load(request, restore):
                    begun.append(restore)
        if begun:
            ready_ns = self._copies.start_loads()
            for restore in begun:
                restore.ready_ns = ready_ns
            self._note_ready(begun)

    def _note_ready(self, restores: Iterable[Restore]) -> None:
        for restore in restores:
            if restore.ready_ns is not None and not restore.is_ready:
                restore.is_ready = self._copies.has_passed(restore.ready_ns)

    def _load(self, request: SglangRequest, restore: Restore) -> bool:
        """Find the prefix again, load and lock it; False: a part of it is lost.

        What is loaded of it all the same begins with the next load of another request.
        """
        node, num_loaded = self._kv.restore_prefix(request.kv, restore.num_tokens)
        if num_loaded:
            self._loaded.append((request.rid, num_loaded))
        if node.end < restore.num_tokens:
            restore.has_failed = True
            return False
        restore.loaded = node, self._tree.lock_with_parts(node)
        return True

    @property
    def waits_for_turn(self) -> bool:
        """Whether a request is in the transfer queue of which nothing is loaded or known yet."""
        for restore in self._restores.values():
            if restore.ready_ns is None and not restore.has_failed:
                return True
        return False

    def failed(self, rid: str) -> bool:
        return self._restores[rid].has_failed

    def is_ready(self, rid: str) -> bool:
        """Whether the whole prefix of a request is on the device."""
        return self._restores[rid].is_ready

    def end(self, request: SglangRequest) -> None:
        """`_commit_hicache_local_restore_to_req`: the request locks the whole prefix itself."""
        loaded = self._restores.pop(request.rid).loaded
        if self._storage is not None:
            self._storage.admitted(request)
        if loaded is not None:
            node, lock = loaded
            self._kv.lock_longer_prefix(request.kv, node)
            self._tree.unlock_with_parts(lock)

    def cancel(self, request: SglangRequest) -> None:
        """The request's KV does not come, or its prefix is lost."""
        loaded = self._restores.pop(request.rid).loaded
        if self._storage is not None:
            self._storage.left(request)
        if loaded is not None:
            self._tree.unlock_with_parts(loaded[1])

    def take_loaded(self) -> tuple[tuple[str, int], ...]:
        """What was loaded since the latest launch: rids, and tokens."""
        if not self._loaded:
            return ()
        loaded, self._loaded = tuple(self._loaded), []
        return loaded


def build_restores(server: SglangServer) -> HostRestores | None:
    """What a server loads for its transfer queue; None: it has no host memory."""
    for part in server.kv.parts:
        if part.host is not None:
            return HostRestores(server.kv, part.host)
    return None


class TransferQueue:
    """Requests in order of allocation, and what is known of all requests' transfers.

    Attributes:
        received: of the queue, requests whose KV has arrived.
        lost: requests of this and of the preallocation queue whose KV will not come, or whose
            clients have given up.
        given_up: those of them whose clients have given up.
    """

    def __init__(self, server: SglangServer, restores: HostRestores | None) -> None:
        """`restores`: what is loaded for the queue from host memory; None: there is none."""
        self._server = server
        self._restores = restores
        self.requests: list[SglangRequest] = []
        self.received: set[str] = set()
        self.lost: set[str] = set()
        self.given_up: set[str] = set()

    @property
    def has_news(self) -> bool:
        return bool(self.received or self.lost)

    def forget_lost(self, rids: Collection[str]) -> None:
        self.lost.difference_update(rids)
        self.given_up.difference_update(rids)

    def pop(self, agreed: Collection[str] | None = None) -> list[SglangRequest]:
        """`pop_transferred`: take out requests whose KV has arrived, and drop those that are lost.

        `agreed`: with stages, those that all have seen; None: there is one stage.
        """
        restores = self._restores
        if restores is not None:
            restores.advance(self.requests, self._server.now_ns)
        arrived: list[SglangRequest] = []
        if not self.has_news:
            return arrived
        staying: list[SglangRequest] = []
        for request in self.requests:
            rid = request.rid
            is_received = rid in self.received
            if agreed is not None and rid not in agreed:
                staying.append(request)
            elif rid in self.lost or (
                is_received and restores is not None and restores.failed(rid)
            ):
                self.forget_lost([rid])
                self.received.discard(rid)
                if restores is not None:
                    restores.cancel(request)
                self._server.release(request)
                self._server.dropped.append(request)
            elif is_received and (restores is None or restores.is_ready(rid)):
                self.received.remove(rid)
                if restores is not None:
                    restores.end(request)
                arrived.append(request)
            else:
                staying.append(request)
        self.requests = staying
        return arrived

"""The matches of waiting requests, kept from pass to pass: a pass over a long queue stays cheap.

SGLang matches every waiting request anew in each pass (rule 8 of docs/explanation/sglang.md). A
match changes only if the node at which it ended was evicted, or got a child that continues the
request's prompt. So the requests are kept in groups, one for each node at which matches end, and
only requests of changed nodes are matched again. A pass also marks the matched prefixes as used, in
the order of the queue: of each group, only the use by its last request counts.
"""

from bisect import bisect_left
from typing import Final

from sim.core.errors import InvariantError
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.cache.tree.radix_node import ChildKey, PrefixMatch, RadixNode
from sim.sglang.request import SglangRequest

# Numbers that order the requests of a group, or of the whole queue. The last one is the request's
# number of entry, so no two places are equal.
Place = tuple[int, ...]
# A place in the whole queue: the rank of the request's group, then its place.
Position = tuple[int, Place]

# Requests that have entered since the last pass stand behind all others.
_LAST_RANK: Final = 1 << 62


class Waiter:
    """A waiting request.

    Attributes:
        num_tokens: its tokens; they do not change while it waits.
        group: the requests whose matches end at the same node; None: it must be matched.
        next_page: the key of the first page after its match; None: it has no more whole pages.
        place: its place in the order that the last pass made; empty before its first pass.
        is_aged: whether it has aged under FAIRNESS_T.
        is_deferred: whether an earlier request will compute its first tokens.
        start: its first tokens, if they were needed; see `Deferral`.
        alike: the requests that it may be deferred to, itself included; None: none.
    """

    def __init__(self, request: SglangRequest) -> None:
        self.request = request
        self.num_tokens = request.num_tokens
        self.group: MatchGroup | None = None
        self.next_page: ChildKey | None = None
        self.place: Place = ()
        self.is_aged = self.is_deferred = False
        self.start: bytes | None = None
        self.alike: Alike | None = None


class Alike:
    """Waiting requests that begin with the same tokens and have few of them cached (rule 8).

    Attributes:
        places: their places, in order.
        first: the only one of them that is not deferred.
    """

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.first: Waiter | None = None


class MatchGroup:
    """The waiting requests whose matches end at one node.

    Attributes:
        rank: the order of the groups in the last pass, where groups are ordered as a whole; -1: the
            group is new.
        places, requests: of the requests, in the order of the last pass.
        by_next_page: requests by `Waiter.next_page`, each a set of entry numbers.
    """

    def __init__(self, node: RadixNode) -> None:
        self.node = node
        self.rank = -1
        self.places: list[Place] = []
        self.requests: list[SglangRequest] = []
        self.by_next_page: dict[ChildKey, dict[int, None]] = {}

    def add(self, waiter: Waiter) -> None:
        index = bisect_left(self.places, waiter.place)
        self.places.insert(index, waiter.place)
        self.requests.insert(index, waiter.request)

    def remove(self, waiter: Waiter) -> None:
        index = bisect_left(self.places, waiter.place)
        del self.places[index]
        del self.requests[index]


class KeptMatches:
    """All waiting requests, grouped by the nodes at which their matches end.

    Attributes:
        waiters: by the numbers of their entry.
        groups: by node; none is empty.
    """

    def __init__(self, kv: KVCacheManager, cache: RadixCache) -> None:
        self._kv = kv
        self._cache = cache
        self.waiters: dict[int, Waiter] = {}
        self.groups: dict[RadixNode, MatchGroup] = {}
        self._entered: list[Waiter] = []

    def enter(self, request: SglangRequest) -> None:
        waiter = Waiter(request)
        self.waiters[request.entry] = waiter
        self._entered.append(waiter)

    def leave(self, request: SglangRequest) -> Waiter:
        """Remove a request that the last pass has matched."""
        waiter = self.waiters.pop(request.entry)
        self._drop(waiter)
        return waiter

    def withdraw(self, request: SglangRequest) -> Waiter | None:
        """Remove any request; returns its waiter, or None if no pass has matched it."""
        waiter = self.waiters[request.entry]
        if waiter.group is not None:
            return self.leave(request)
        del self.waiters[request.entry]
        self._entered.remove(waiter)
        return None

    def renew(self, first: SglangRequest | None) -> list[tuple[Position, Waiter]]:
        """Match the requests whose matches may have changed, and mark all prefixes as used.

        The caller gives each of the returned requests a place, and calls `join` for it.

        `first` is at the head of the queue. The last pass may have matched it again, without its
        last token, and then not admitted it.

        Returns the requests that were matched, each with its position before, in this order.
        """
        uses: list[tuple[int, Place, Waiter]] = []
        for waiter in self._changed(first):
            uses.append((self.group_of(waiter).rank, waiter.place, waiter))
            self._drop(waiter)
        for group in self.groups.values():
            if group.node.parent is not None:
                last = group.places[-1]
                uses.append((group.rank, last, self.waiters[last[-1]]))
        uses.sort()
        renewed: list[tuple[Position, Waiter]] = []
        for rank, place, waiter in uses:
            if waiter.group is None:
                self._kv.match_waiting(waiter.request)
                renewed.append(((rank, place), waiter))
            else:
                self._cache.touch(PrefixMatch(waiter.group.node))
        for waiter in self._entered:
            self._kv.match_waiting(waiter.request)
            renewed.append(((_LAST_RANK, (waiter.request.entry,)), waiter))
        self._entered = []
        return renewed

    def join(self, waiter: Waiter) -> None:
        """Put a request into the group of the node at which its match ended."""
        group = self.group_at(waiter.request.kv.found or self._cache.root)
        waiter.group = group
        group.add(waiter)
        end, page_size = group.node.end, self._kv.page_size
        waiter.next_page = None
        if end + page_size <= waiter.num_tokens:
            tokens = waiter.request.kv.token_ids(waiter.num_tokens)
            waiter.next_page = key = self._cache.child_key(group.node, tokens, end)
            group.by_next_page.setdefault(key, {})[waiter.request.entry] = None

    def group_at(self, node: RadixNode) -> MatchGroup:
        """The group of a node; a new one, which must not stay empty, if there is none."""
        group = self.groups.get(node)
        if group is None:
            group = self.groups[node] = MatchGroup(node)
            node.is_watched = True
        return group

    def group_of(self, waiter: Waiter) -> MatchGroup:
        if waiter.group is None:
            raise InvariantError(f"{waiter.request.rid} waits and was not matched")
        return waiter.group

    def _changed(self, first: SglangRequest | None) -> list[Waiter]:
        changed: dict[int, None] = {}
        changes, self._cache.changes = self._cache.changes, []
        for node, key in changes:
            group = self.groups.get(node)
            if group is None:
                continue
            if key is None:
                for place in group.places:
                    changed[place[-1]] = None
            else:
                changed.update(group.by_next_page.get(key, {}))
        if first is not None and self.waiters[first.entry].group is not None:
            changed[first.entry] = None
        return [self.waiters[entry] for entry in changed]

    def _drop(self, waiter: Waiter) -> None:
        """Remove a request from its group."""
        group = self.group_of(waiter)
        waiter.group = None
        group.remove(waiter)
        if waiter.next_page is not None:
            same_next = group.by_next_page[waiter.next_page]
            del same_next[waiter.request.entry]
            if not same_next:
                del group.by_next_page[waiter.next_page]
        if not group.places:
            del self.groups[group.node]
            group.node.is_watched = False

"""Orders of the waiting queue that are kept from pass to pass: see `KeptMatches`.

Each class makes the order that its policy's `order` makes, with the fairness rule applied, at a
cost that depends on what has changed since the last pass and not on the length of the queue. It
also keeps which requests are deferred (rule 8, in-batch prefixes): a request that has few cached
tokens, and that starts with the same tokens as an earlier waiting request that also has few, is
deferred: the earlier one will put these tokens into the cache.
"""

from bisect import bisect_left, insort
from typing import Final

from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.config import SchedulerConfig
from sim.sglang.policies.orders import dfs_weight_nodes
from sim.sglang.policies.policy import (
    DfsWeight,
    SchedulePolicy,
    ShortestPrefillFirst,
    prefill_work,
)
from sim.sglang.request import SglangRequest
from sim.sglang.scheduler.waiting.fairness import FairnessT
from sim.sglang.scheduler.waiting.kept_matches import Alike, KeptMatches, Place, Position, Waiter

_AGED: Final = 0
_NOT_AGED: Final = 1


class KeptOrder:
    """An order of the waiting queue that is kept from pass to pass.

    Attributes:
        requests: in the order of the last pass; requests that have entered since come last.
    """

    def __init__(self, kv: KVCacheManager, cache: RadixCache) -> None:
        self._matches = KeptMatches(kv, cache)
        self._root = cache.root
        self.requests: list[SglangRequest] = []

    def enter(self, request: SglangRequest) -> None:
        self._matches.enter(request)
        self.requests.append(request)

    def leave(self, requests: list[SglangRequest]) -> None:
        """Remove the requests that the last pass has admitted: the first ones of its order."""
        raise NotImplementedError

    def remove(self, request: SglangRequest, index: int) -> None:
        """Remove a request that is not served, at this index of `requests`."""
        del self.requests[index]
        self._matches.withdraw(request)

    def order(self, newly_aged: list[SglangRequest]) -> None:
        """Make the order of a pass; the `newly_aged` requests have aged since the last pass."""
        raise NotImplementedError


class ShortestPrefillOrder(KeptOrder):
    """Policy shortest-prefill-first: not deferred before deferred, then by uncached tokens.

    A request's place is (0 or 1, arrival, deferred, uncached tokens, entry). Aged requests have 0
    and their arrival time there; the others have 1 and 0, and so go by the policy alone.
    """

    def __init__(self, config: SchedulerConfig, kv: KVCacheManager, cache: RadixCache) -> None:
        super().__init__(kv, cache)
        self._deferral = Deferral(config, self._matches)
        self._places: list[Place] = []

    def leave(self, requests: list[SglangRequest]) -> None:
        del self.requests[: len(requests)]
        del self._places[: len(requests)]
        for request in requests:
            self._deferral.leave(self._matches.leave(request))

    def remove(self, request: SglangRequest, index: int) -> None:
        del self.requests[index]
        if index < len(self._places):
            del self._places[index]
        waiter = self._matches.withdraw(request)
        if waiter is not None:
            self._deferral.leave(waiter)

    def order(self, newly_aged: list[SglangRequest]) -> None:
        matched = self._matches.renew(self.requests[0] if self.requests else None)
        del self.requests[len(self._places) :]
        moved = {waiter.request.entry: waiter for _, waiter in matched}
        for waiter in self._deferral.renew(matched):
            moved[waiter.request.entry] = waiter
        for request in newly_aged:
            waiter = moved[request.entry] = self._matches.waiters[request.entry]
            waiter.is_aged = True
        for waiter in moved.values():
            self._move(waiter)

    def _move(self, waiter: Waiter) -> None:
        """Give a request the place that it should have, in the queue and in its groups."""
        old, new, group = waiter.place, _place(waiter), waiter.group
        if old != new:
            if old:
                index = bisect_left(self._places, old)
                del self._places[index]
                del self.requests[index]
            index = bisect_left(self._places, new)
            self._places.insert(index, new)
            self.requests.insert(index, waiter.request)
        if group is None:
            waiter.place = new
            self._matches.join(waiter)
            self._deferral.join(waiter)
        elif old != new:
            group.remove(waiter)
            self._deferral.move(waiter, new)
            waiter.place = new
            group.add(waiter)


def _place(waiter: Waiter) -> Place:
    request, deferred = waiter.request, int(waiter.is_deferred)
    work, entry = prefill_work(request), request.entry
    if waiter.is_aged:
        return _AGED, request.spec.arrival_ns, deferred, work, entry
    return _NOT_AGED, 0, deferred, work, entry


class DfsWeightOrder(KeptOrder):
    """Policy dfs-weight: a walk over the groups; each group's requests stand together.

    A request's place within its group is (number, entry). Requests that come from other groups get
    the next numbers before or after all others, as their old group stood before or after this one.
    """

    def leave(self, requests: list[SglangRequest]) -> None:
        del self.requests[: len(requests)]
        for request in requests:
            self._matches.leave(request)

    def order(self, newly_aged: list[SglangRequest]) -> None:
        matches = self._matches
        earlier: list[Waiter] = []
        for (rank, place), waiter in matches.renew(self.requests[0] if self.requests else None):
            group = matches.group_at(waiter.request.kv.found or self._root)
            if group.places and rank < group.rank:
                earlier.append(waiter)
                continue
            if not group.places or rank > group.rank:
                number = group.places[-1][0] + 1 if group.places else 0
                waiter.place = number, waiter.request.entry
            else:
                waiter.place = place
            matches.join(waiter)
        for waiter in reversed(earlier):
            group = matches.group_at(waiter.request.kv.found or self._root)
            waiter.place = group.places[0][0] - 1, waiter.request.entry
            matches.join(waiter)
        weights = [(node, len(group.places)) for node, group in matches.groups.items()]
        self.requests.clear()
        for rank, node in enumerate(dfs_weight_nodes(weights, self._root)):
            group = matches.groups[node]
            group.rank = rank
            self.requests += group.requests


def build_kept_order(
    config: SchedulerConfig, kv: KVCacheManager, policy: SchedulePolicy
) -> KeptOrder | None:
    """The kept order for these settings; None: each pass orders the whole queue.

    The user's own rules may look at any request, and not every cache notes its changes.
    """
    cache, fairness = kv.watched_cache, config.fairness
    if cache is None:
        return None
    if config.admission is not None or any(rule is not None for rule in config.user):
        return None
    if fairness is not None and not isinstance(fairness, FairnessT):
        return None
    if type(policy) is ShortestPrefillFirst:
        return ShortestPrefillOrder(config, kv, cache)
    is_by_weight = type(policy) is DfsWeight and fairness is None
    return DfsWeightOrder(kv, cache) if is_by_weight else None


class Deferral:
    """Finds the deferred requests again when requests were matched or have left.

    "Earlier" means the order of the queue before the pass. So the first of several alike requests
    stays the same until it leaves, or has enough cached tokens, or another one is moved before it.
    """

    def __init__(self, config: SchedulerConfig, matches: KeptMatches) -> None:
        self._most_cached = config.in_batch_prefix_check_threshold
        self._start_len = config.in_batch_prefix_deprioritize_threshold
        self._matches = matches
        self._by_start: dict[bytes, Alike] = {}
        # Those that may have another first request than in the last pass.
        self._unsettled: dict[Alike, None] = {}

    def leave(self, waiter: Waiter) -> None:
        """A request leaves the queue, or is matched again."""
        alike = waiter.alike
        if alike is not None:
            waiter.alike = None
            del alike.places[bisect_left(alike.places, waiter.place)]
            self._unsettled[alike] = None
            if alike.first is waiter:
                alike.first = None

    def move(self, waiter: Waiter, place: Place) -> None:
        """A request of this pass gets another place."""
        alike = waiter.alike
        if alike is not None:
            before = alike.places[0]
            del alike.places[bisect_left(alike.places, waiter.place)]
            self._add(alike, place)
            if alike.places[0] != before:
                self._unsettled[alike] = None

    def join(self, waiter: Waiter) -> None:
        """A request that was matched has its place now."""
        if waiter.alike is not None:
            self._add(waiter.alike, waiter.place)

    def _add(self, alike: Alike, place: Place) -> None:
        insort(alike.places, place)
        if alike.places[0] == place:
            # Under FAIRNESS_T a deferred request may come to stand before the first one: it ages.
            self._unsettled[alike] = None

    def renew(self, matched: list[tuple[Position, Waiter]]) -> list[Waiter]:
        """Decide which requests are deferred in this pass.

        `matched` are the requests that this pass has matched, each with its position before, in
        this order.

        Returns the other requests for which the answer has changed.
        """
        first_matched: dict[Alike, tuple[Position, Waiter]] = {}
        for _, waiter in matched:
            self.leave(waiter)
        for position, waiter in matched:
            waiter.alike = alike = self._alike_of(waiter)
            waiter.is_deferred = alike is not None
            if alike is not None and alike not in first_matched:
                first_matched[alike] = position, waiter
                self._unsettled[alike] = None
        changed: list[Waiter] = []
        for alike in self._unsettled:
            before, first = alike.first, self._first_of(alike, first_matched.get(alike))
            alike.first = first
            if first is None:
                continue
            if before is not None and before is not first:
                before.is_deferred = True
                changed.append(before)
            if first.is_deferred:
                first.is_deferred = False
                changed.append(first)
        self._unsettled = {}
        return changed

    def _first_of(self, alike: Alike, matched: tuple[Position, Waiter] | None) -> Waiter | None:
        """The first of these requests in the order before: a known one, or the `matched` one."""
        if not alike.places:
            return None if matched is None else matched[1]
        place = alike.places[0]
        known = self._matches.waiters[place[-1]]
        if matched is not None and matched[0] < (self._matches.group_of(known).rank, place):
            return matched[1]
        return known

    def _alike_of(self, waiter: Waiter) -> Alike | None:
        request, length = waiter.request, self._start_len
        if request.prefix_len > self._most_cached or waiter.num_tokens < length:
            return None
        if waiter.start is None:
            waiter.start = request.kv.token_ids(waiter.num_tokens)[:length].tobytes()
        alike = self._by_start.get(waiter.start)
        if alike is None:
            alike = self._by_start[waiter.start] = Alike()
        return alike

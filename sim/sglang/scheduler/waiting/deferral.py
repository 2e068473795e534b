"""Which waiting requests are deferred, kept from pass to pass (rule 8, in-batch prefixes).

A request that has few cached tokens, and that starts with the same tokens as an earlier waiting
request that also has few, is deferred: the earlier one will put these tokens into the cache.
"""

from bisect import bisect_left, insort

from sim.sglang.config import SchedulerConfig
from sim.sglang.scheduler.waiting.kept_matches import Alike, KeptMatches, Place, Position, Waiter


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

        Args:
            matched: the requests that this pass has matched, each with its position before, in
                this order.

        Returns:
            The other requests for which the answer has changed.
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

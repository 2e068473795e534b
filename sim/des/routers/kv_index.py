"""Which blocks the replicas' prefix caches hold, as far as their events have arrived."""

from collections import deque
from collections.abc import Callable, Sequence

# Compared at once by `num_leading`.
_STRIDE = 64


class CacheFeed:
    """The events of one cache on their way to the index."""

    def __init__(
        self,
        held: set[int],
        late: "deque[tuple[int, set[int], bool, list[int]]]",
        arrives_ns: Callable[[], int],
    ) -> None:
        self._held, self._late, self._arrives_ns = held, late, arrives_ns

    def stored(self, keys: list[int]) -> None:
        self._late.append((self._arrives_ns(), self._held, True, keys))

    def removed(self, keys: list[int]) -> None:
        self._late.append((self._arrives_ns(), self._held, False, keys))


class KvIndex:
    """The keys of all blocks that each cache holds.

    A replica with several ranks has a cache for each of them.

    Args:
        delay_ns: how long each event is under way.
    """

    def __init__(self, delay_ns: int) -> None:
        self._delay_ns = delay_ns
        self._caches: dict[int, list[set[int]]] = {}
        # All events take equally long, so they arrive in the order in which they are sent.
        self._late: deque[tuple[int, set[int], bool, list[int]]] = deque()

    def add_cache(self, replica: int, now_ns: Callable[[], int]) -> CacheFeed:
        """One more cache of a replica; what it returns is the cache's listener."""
        held: set[int] = set()
        self._caches.setdefault(replica, []).append(held)
        return CacheFeed(held, self._late, lambda: now_ns() + self._delay_ns)

    def advance(self, now_ns: int) -> None:
        """Take in the events that have arrived by now."""
        while self._late and self._late[0][0] <= now_ns:
            _, held, is_stored, keys = self._late.popleft()
            if is_stored:
                held.update(keys)
            else:
                held.difference_update(keys)

    def held(self, replica: int) -> list[frozenset[int]]:
        """The keys of the blocks that each of a replica's caches holds."""
        return [frozenset(held) for held in self._caches.get(replica, ())]

    def num_cached(self, keys: Sequence[int], replica: int) -> int:
        """How many of a prompt's first blocks a replica has; with ranks, the rank with the most."""
        return max((num_leading(keys, held) for held in self._caches.get(replica, ())), default=0)


def num_leading(keys: Sequence[int], held: "set[int] | dict[int, int]") -> int:
    """How many of the first keys are in `held`, up to the first that is not."""
    known, first = held.keys() if isinstance(held, dict) else held, 0
    while first < len(keys) and known >= set(keys[first : first + _STRIDE]):
        first += _STRIDE
    for number, key in enumerate(keys[first : first + _STRIDE], first):
        if key not in held:
            return number
    return min(first, len(keys))

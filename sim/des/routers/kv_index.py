"""What a router knows of the replicas' caches: from their events, and from what it has sent."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from sim.core.routing import TierCredits

# Keys that `num_leading` compares at once.
_STRIDE = 64
_FOR_EVER_NS = 1 << 62

# An event: when it arrives, what is known of the tier, whether blocks are stored, their keys.
_Event = tuple[int, set[int], bool, list[int]]


class TierFeed:
    """Sends the events of one tier of a cache to the index."""

    def __init__(
        self, held: set[int], under_way: deque[_Event], arrives_ns: Callable[[], int]
    ) -> None:
        self._held, self._under_way, self._arrives_ns = held, under_way, arrives_ns

    def stored(self, keys: list[int]) -> None:
        self._under_way.append((self._arrives_ns(), self._held, True, keys))

    def removed(self, keys: list[int]) -> None:
        self._under_way.append((self._arrives_ns(), self._held, False, keys))


class KnownCache:
    """What is known of one cache: the keys of the blocks that each of its tiers holds.

    A store that several servers share is known once: they have the same set.
    """

    def __init__(self) -> None:
        self.device: set[int] = set()
        self.host: set[int] = set()
        self.storage: set[int] = set()


class Hits(NamedTuple):
    """How many of a prompt's first blocks are found in each tier, behind those of the tier above.

    As servers look for them, and as Dynamo's router counts them (`OverlapAnalysis` of
    lib/kv-router/src/scheduling/overlap.rs): on the device first, then in host memory from where
    that ends, then in the store.
    """

    device: int = 0
    host: int = 0
    storage: int = 0

    def worth(self, credit: TierCredits) -> float:
        """What these blocks are worth, in blocks."""
        return self.device * credit.device + self.below(credit)

    def below(self, credit: TierCredits) -> float:
        """The same without those on the device."""
        return self.host * credit.host + self.storage * credit.storage


class SentBlocks:
    """The blocks of the prompts that each replica was sent lately, which it is thought to have.

    A block counts for `ttl_ns` after each prompt with it. If a replica has more blocks than its
    limit, those sent least recently are forgotten first; of one prompt, the last blocks first.

    Args:
        ttl_ns: how long a block counts; None: until it is forgotten for others.
    """

    def __init__(self, ttl_ns: int | None) -> None:
        self._ttl_ns = _FOR_EVER_NS if ttl_ns is None else ttl_ns
        self._most_blocks: dict[int, int] = {}
        # By replica: key -> when it was sent last, the earliest first.
        self._sent_ns: dict[int, OrderedDict[int, int]] = {}

    def limit(self, replica: int, most_blocks: int) -> None:
        """Remember no more blocks of this replica. Without a limit: any number."""
        self._most_blocks[replica] = most_blocks

    def sent(self, keys: Sequence[int], replica: int, now_ns: int) -> None:
        """A prompt is sent to a replica."""
        sent_ns = self._sent_ns.setdefault(replica, OrderedDict())
        for key in reversed(keys):
            sent_ns.pop(key, None)
            sent_ns[key] = now_ns
        num_more = len(sent_ns) - self._most_blocks.get(replica, len(sent_ns))
        for _ in range(num_more):
            sent_ns.popitem(last=False)

    def held(self, replica: int, now_ns: int) -> AbstractSet[int]:
        """The blocks that a replica is thought to have now."""
        sent_ns = self._sent_ns.get(replica)
        if sent_ns is None:
            return frozenset()
        while sent_ns:
            oldest = next(iter(sent_ns))
            if now_ns - sent_ns[oldest] < self._ttl_ns:
                break
            del sent_ns[oldest]
        return sent_ns.keys()


class KvIndex:
    """The keys of all blocks that each cache holds, tier by tier.

    A replica with several ranks has a cache for each of them.

    Args:
        delay_ns: how long each event is under way.
        sent: prompts that were sent lately, whose blocks count as cached; None: none do.
    """

    def __init__(self, delay_ns: int, sent: SentBlocks | None = None) -> None:
        self._delay_ns = delay_ns
        self._sent = sent
        self._caches: dict[int, list[KnownCache]] = {}
        # All events take equally long, so they arrive in the order in which they are sent.
        self._under_way: deque[_Event] = deque()

    def add_cache(self, replica: int) -> KnownCache:
        """A cache of a replica, of which nothing is known yet."""
        cache = KnownCache()
        self._caches.setdefault(replica, []).append(cache)
        return cache

    def feed(self, held: set[int], now_ns: Callable[[], int]) -> TierFeed:
        """What listens to a tier, to keep `held` up to date."""
        return TierFeed(held, self._under_way, lambda: now_ns() + self._delay_ns)

    def advance(self, now_ns: int) -> None:
        """Take in the events that have arrived by now."""
        while self._under_way and self._under_way[0][0] <= now_ns:
            _, held, is_stored, keys = self._under_way.popleft()
            if is_stored:
                held.update(keys)
            else:
                held.difference_update(keys)

    def known(self, replica: int) -> list[KnownCache]:
        """What is known of each of a replica's caches."""
        return self._caches.get(replica, [])

    def hits(self, keys: Sequence[int], replica: int, now_ns: int, credit: TierCredits) -> Hits:
        """Where a replica has a prompt's first blocks; with ranks, on the rank where most count."""
        sent = frozenset[int]() if self._sent is None else self._sent.held(replica, now_ns)
        caches = self._caches.get(replica) or [KnownCache()]
        found = (_hits(keys, cache, sent, credit) for cache in caches)
        return max(found, key=lambda hits: hits.device + hits.below(credit))


def _hits(
    keys: Sequence[int], cache: KnownCache, sent: AbstractSet[int], credit: TierCredits
) -> Hits:
    device = (
        _num_leading_in((cache.device, sent), keys) if sent else num_leading(keys, cache.device)
    )
    host = num_leading(keys[device:], cache.host) if credit.host and cache.host else 0
    storage = 0
    if credit.storage and cache.storage:
        storage = num_leading(keys[device + host :], cache.storage)
    return Hits(device, host, storage)


def _num_leading_in(sets: Iterable[AbstractSet[int]], keys: Sequence[int]) -> int:
    """How many of the first keys are in one of several sets."""
    first, more = 0, 1
    while more:
        more = max([num_leading(keys[first:], held) for held in sets])
        first += more
    return first


def num_leading(keys: Sequence[int], held: AbstractSet[int]) -> int:
    """How many of the first keys are in `held`, up to the first that is not."""
    first = 0
    while first < len(keys) and held >= set(keys[first : first + _STRIDE]):
        first += _STRIDE
    for number, key in enumerate(keys[first : first + _STRIDE], first):
        if key not in held:
            return number
    return min(first, len(keys))

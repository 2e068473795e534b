"""KV-aware routing: by the blocks that replicas report as cached, and by their unfinished work.

The rules are those of NVIDIA Dynamo's KV router: `DefaultWorkerSelector` of
lib/kv-router/src/scheduling/selector.rs, and the pages Routing Concepts and Configuration and
Tuning of its documentation, version 1.2.1. Deliberate differences: of several replicas with the
lowest cost the one with the fewest unfinished requests is chosen, and the first of these, not one
at random; without `track_prefill_tokens` the request's own prompt still counts.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sim.core.request import RequestSpec
from sim.core.tokens import BlockKeys, TokenIds
from sim.des.routers.router import RoutedReplica
from sim.engine.page_pool import KeysOf

# For a router that is connected to no servers.
_UNCONNECTED_BLOCK_TOKENS = 16
# Keys that `num_leading` compares at once.
_STRIDE = 64

# An event: when it arrives, what the index holds of the cache, whether it is stored, the keys.
_Event = tuple[int, set[int], bool, list[int]]


class CacheFeed:
    """Sends the events of one cache to the index."""

    def __init__(
        self, held: set[int], under_way: deque[_Event], arrives_ns: Callable[[], int]
    ) -> None:
        self._held, self._under_way, self._arrives_ns = held, under_way, arrives_ns

    def stored(self, keys: list[int]) -> None:
        self._under_way.append((self._arrives_ns(), self._held, True, keys))

    def removed(self, keys: list[int]) -> None:
        self._under_way.append((self._arrives_ns(), self._held, False, keys))


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
        self._under_way: deque[_Event] = deque()

    def add_cache(self, replica: int, now_ns: Callable[[], int]) -> CacheFeed:
        """Add a cache of a replica; returns what listens to it."""
        held: set[int] = set()
        self._caches.setdefault(replica, []).append(held)
        return CacheFeed(held, self._under_way, lambda: now_ns() + self._delay_ns)

    def advance(self, now_ns: int) -> None:
        """Take in the events that have arrived by now."""
        while self._under_way and self._under_way[0][0] <= now_ns:
            _, held, is_stored, keys = self._under_way.popleft()
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


def num_leading(keys: Sequence[int], held: set[int] | dict[int, int]) -> int:
    """How many of the first keys are in `held`, up to the first that is not."""
    known, first = held.keys() if isinstance(held, dict) else held, 0
    while first < len(keys) and known >= set(keys[first : first + _STRIDE]):
        first += _STRIDE
    for number, key in enumerate(keys[first : first + _STRIDE], first):
        if key not in held:
            return number
    return min(first, len(keys))


@dataclass(slots=True)
class _Sent:
    """A request's block keys, and the prompt tokens that the replica still has to compute."""

    keys: Sequence[int]
    prefill_tokens: int


class ActiveWork:
    """What one replica has to do, as Dynamo's router reckons it.

    Attributes:
        prefill_tokens: prompt tokens to compute for requests without a first token, as many as
            each request lacked in the cache when it was sent.
        num_blocks: full prompt blocks of the requests that are not over; a block that several
            prompts share counts once.
    """

    def __init__(self) -> None:
        self.prefill_tokens = 0
        self._sent: dict[str, _Sent] = {}
        # How many requests each block belongs to.
        self._num_users: dict[int, int] = {}

    @property
    def num_blocks(self) -> int:
        return len(self._num_users)

    def num_blocks_with(self, keys: Sequence[int]) -> int:
        """What `num_blocks` would be with one more request, whose blocks have these keys."""
        return len(self._num_users) + len(keys) - num_leading(keys, self._num_users)

    def add(self, rid: str, keys: Sequence[int], prefill_tokens: int) -> None:
        """A request is sent to the replica, which has to compute `prefill_tokens` of its prompt."""
        self._sent[rid] = _Sent(keys, prefill_tokens)
        self.prefill_tokens += prefill_tokens
        for key in keys:
            self._num_users[key] = self._num_users.get(key, 0) + 1

    def prefilled(self, rid: str) -> None:
        """A request has its first token."""
        sent = self._sent[rid]
        self.prefill_tokens -= sent.prefill_tokens
        sent.prefill_tokens = 0

    def over(self, rid: str) -> None:
        self.prefilled(rid)
        for key in self._sent.pop(rid).keys:
            if self._num_users[key] > 1:
                self._num_users[key] -= 1
            else:
                del self._num_users[key]


class KvAware:
    """Chooses the replica with the lowest cost, in blocks; or draws, low costs more often.

        cost = prefill_load_scale x blocks to compute + blocks of running requests

    The blocks to compute are those of the prompts that the replica has not computed yet, and those
    of this prompt without `overlap_credit` times the blocks that the replica has cached.

    Attributes:
        index: what the replicas have cached.
        block_tokens: tokens in a block: the page size of the servers.
        keys_of: makes the keys of a prompt's blocks, as the servers' caches make them.

    Args:
        event_delay_ns: how long an event is under way from a cache to the router.
        overlap_credit: share of a cached block that counts as saved.
        prefill_load_scale: weight of the blocks to compute.
        track_prefill_tokens: count what replicas have to compute for other requests.
        track_active_blocks: count the blocks of requests that are not over.
        temperature: of the draw by softmax over normalised costs; 0: the lowest cost is chosen.
        random: what choices are drawn from; None at temperature 0.
    """

    def __init__(
        self,
        *,
        event_delay_ns: int,
        overlap_credit: float,
        prefill_load_scale: float,
        track_prefill_tokens: bool,
        track_active_blocks: bool,
        temperature: float,
        random: np.random.Generator | None = None,
    ) -> None:
        self.index = KvIndex(event_delay_ns)
        self.block_tokens = _UNCONNECTED_BLOCK_TOKENS
        self.keys_of: KeysOf = _keys_of
        self._overlap_credit = overlap_credit
        self._prefill_load_scale = prefill_load_scale
        self._track_prefill_tokens = track_prefill_tokens
        self._track_active_blocks = track_active_blocks
        self._temperature = temperature
        self._random = random
        self._work: list[ActiveWork] = []
        self._replica_of: dict[str, int] = {}

    def choose(self, spec: RequestSpec, replicas: Sequence[RoutedReplica]) -> int:
        while len(self._work) < len(replicas):
            self._work.append(ActiveWork())
        self.index.advance(spec.arrival_ns)
        keys = self.keys_of(spec.prompt.token_ids())
        cached = [self.index.num_cached(keys, number) for number in range(len(replicas))]
        costs = [
            self._cost(len(spec.prompt), keys, work, num_cached)
            for work, num_cached in zip(self._work, cached, strict=True)
        ]
        chosen = self._pick(costs, replicas)
        num_new = max(len(spec.prompt) - cached[chosen] * self.block_tokens, 0)
        self._work[chosen].add(spec.rid, keys, num_new)
        self._replica_of[spec.rid] = chosen
        return chosen

    def prefilled(self, rid: str) -> None:
        replica = self._replica_of.get(rid)
        if replica is not None:
            self._work[replica].prefilled(rid)

    def over(self, rid: str) -> None:
        replica = self._replica_of.pop(rid, None)
        if replica is not None:
            self._work[replica].over(rid)

    def _cost(
        self, prompt_len: int, keys: Sequence[int], work: ActiveWork, num_cached: int
    ) -> float:
        num_tokens = prompt_len + work.prefill_tokens * self._track_prefill_tokens
        prefill_blocks = num_tokens / self.block_tokens - self._overlap_credit * num_cached
        cost = self._prefill_load_scale * max(prefill_blocks, 0.0)
        return cost + work.num_blocks_with(keys) if self._track_active_blocks else cost

    def _pick(self, costs: Sequence[float], replicas: Sequence[RoutedReplica]) -> int:
        least, most = min(costs), max(costs)
        if self._random is None:
            return min(
                (number for number, cost in enumerate(costs) if cost == least),
                key=lambda number: replicas[number].num_unfinished,
            )
        scale = (most - least) * self._temperature
        weights = [math.exp((least - cost) / scale) if scale else 1.0 for cost in costs]
        drawn = self._random.random() * sum(weights)
        for number, weight in enumerate(weights):
            drawn -= weight
            if drawn < 0:
                return number
        return len(costs) - 1


def _keys_of(token_ids: TokenIds) -> list[int]:
    """The keys for a router that is connected to no servers."""
    keys: list[int] = BlockKeys(_UNCONNECTED_BLOCK_TOKENS).of(token_ids).tolist()
    return keys

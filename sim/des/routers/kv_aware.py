"""KV-aware routing: by the blocks that replicas report as cached, and by their unfinished work.

The rules are those of NVIDIA Dynamo's KV router: `DefaultWorkerSelector` of
lib/kv-router/src/scheduling/selector.rs, and the pages Routing Concepts and Configuration and
Tuning of its documentation, version 1.2.1. Deliberate differences: of several replicas with the
lowest cost the one with the fewest unfinished requests is chosen, and the first of these, not one
at random; without `track_prefill_tokens` the request's own prompt still counts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sim.core.request import RequestSpec
from sim.core.routing import Knowledge, TierCredits
from sim.des.routers.caches import Caches
from sim.des.routers.kv_index import Hits, num_leading
from sim.des.routers.router import RoutedReplica


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
        return len(self._num_users) + len(keys) - num_leading(keys, self._num_users.keys())

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
    of this prompt without what the blocks that the replica has cached are worth in their tiers.

    Attributes:
        caches: what the replicas have cached, as far as the router knows.
        predicted_tokens: how many tokens of the latest prompt are thought to be cached where it
            was sent.

    Args:
        knowledge: how the router learns of the caches.
        credit: share of a cached block that counts as saved, by tier.
        prefill_load_scale: weight of the blocks to compute.
        track_prefill_tokens: count what replicas have to compute for other requests.
        track_active_blocks: count the blocks of requests that are not over.
        temperature: of the draw by softmax over normalised costs; 0: the lowest cost is chosen.
        random: what choices are drawn from; None at temperature 0.
    """

    def __init__(
        self,
        *,
        knowledge: Knowledge,
        credit: TierCredits,
        prefill_load_scale: float,
        track_prefill_tokens: bool,
        track_active_blocks: bool,
        temperature: float,
        random: np.random.Generator | None = None,
    ) -> None:
        self.caches = Caches(knowledge, credit)
        self.predicted_tokens = 0
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
        caches = self.caches
        hits = caches.look_up(spec, len(replicas))
        costs = [
            self._cost(len(spec.prompt), caches.keys, work, found)
            for work, found in zip(self._work, hits, strict=True)
        ]
        chosen = self._pick(costs, replicas)
        found = hits[chosen]
        self.predicted_tokens = caches.sent(spec, chosen, found)
        num_cached = round((found.device + found.below(caches.credit)) * caches.block_tokens)
        num_new = max(len(spec.prompt) - num_cached, 0)
        self._work[chosen].add(spec.rid, caches.keys, num_new)
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

    def _cost(self, prompt_len: int, keys: Sequence[int], work: ActiveWork, hits: Hits) -> float:
        num_tokens = prompt_len + work.prefill_tokens * self._track_prefill_tokens
        prefill_blocks = num_tokens / self.caches.block_tokens - hits.worth(self.caches.credit)
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

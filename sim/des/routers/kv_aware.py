"""KV-aware routing: by what the replicas' caches say they hold, and by the work they have.

The rules are those of NVIDIA Dynamo's KV router: `DefaultWorkerSelector` of
lib/kv-router/src/scheduling/selector.rs, and the pages Routing Concepts and Configuration and
Tuning of its documentation, version 1.2.1. Deliberate differences: of several replicas with the
lowest cost the one with the fewest unfinished requests is chosen, and the first of these, not one
at random; without `track_prefill_tokens` the request's own prompt still counts.
"""

import math
from collections.abc import Sequence

import numpy as np

from sim.core.block_keys import BlockKeys
from sim.core.request import RequestSpec
from sim.core.tokens import TokenIds
from sim.des.routers.active_work import ActiveWork
from sim.des.routers.kv_index import KvIndex
from sim.des.routers.router import Replica
from sim.engine.cache_events import KeysOf

_UNCONNECTED_BLOCK_TOKENS = 16


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
        random: "np.random.Generator | None" = None,
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

    def choose(self, spec: RequestSpec, replicas: Sequence[Replica]) -> int:
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

    def _pick(self, costs: Sequence[float], replicas: Sequence[Replica]) -> int:
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

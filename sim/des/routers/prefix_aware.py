"""Prefix-aware routing: to where the prompt's beginning was sent before, if loads allow.

The rules of policy `cache_aware` of SGLang's gateway (sgl-model-gateway 0.3.2, Apache-2.0), read
off its code. Deliberate differences: prompts are compared as blocks of tokens, not as characters;
the tree is kept within its size at every request, not every two minutes, and what is evicted is
the least recently sent; among equally loaded replicas the one with the smallest tree is taken,
not the first.
"""

from collections.abc import Sequence

from sim.core.request import RequestSpec
from sim.des.routers.block_keys import BlockKeys
from sim.des.routers.prefix_tree import PrefixTree
from sim.des.routers.router import Replica


class PrefixAware:
    """By prefix while loads are even, by load when they are not.

    Args:
        cache_threshold: go by the prefix if more than this share of the prompt is found.
        balance_abs_threshold: loads are uneven if the largest exceeds the smallest by more, ...
        balance_rel_threshold: ... and is more than so many times the smallest.
        max_tree_tokens: of what was sent to each replica this much is remembered.
        block_tokens: prompts are compared in blocks of so many tokens.
    """

    def __init__(
        self,
        *,
        cache_threshold: float,
        balance_abs_threshold: int,
        balance_rel_threshold: float,
        max_tree_tokens: int,
        block_tokens: int,
    ) -> None:
        self._cache_threshold = cache_threshold
        self._balance_abs_threshold = balance_abs_threshold
        self._balance_rel_threshold = balance_rel_threshold
        self._block_tokens = block_tokens
        self._keys = BlockKeys(block_tokens)
        self._tree = PrefixTree(max_tree_tokens // block_tokens)

    def choose(self, spec: RequestSpec, replicas: Sequence[Replica]) -> int:
        keys = self._keys.of(spec.prompt.token_ids())
        loads = [replica.num_unfinished for replica in replicas]
        chosen = self._emptiest(loads)
        if not self._are_uneven(loads):
            match = self._tree.match(keys)
            found_tokens = match.num_blocks * self._block_tokens
            if found_tokens > self._cache_threshold * len(spec.prompt):
                chosen = match.replica
        self._tree.insert(keys, chosen)
        return chosen

    def _are_uneven(self, loads: Sequence[int]) -> bool:
        least, most = min(loads), max(loads)
        return (
            most - least > self._balance_abs_threshold
            and most > self._balance_rel_threshold * least
        )

    def _emptiest(self, loads: Sequence[int]) -> int:
        """The least loaded; of several, the one that was sent the least to remember."""
        least = min(loads)
        return min(
            (replica for replica, load in enumerate(loads) if load == least),
            key=self._tree.num_blocks,
        )

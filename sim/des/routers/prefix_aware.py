"""Prefix-aware routing: to the replica that got the same prefix before, while loads are even.

The rules are those of policy `cache_aware` of SGLang's gateway (sgl-model-gateway 0.3.2,
Apache-2.0), taken from its code. Deliberate differences: prompts are compared as blocks of tokens,
not as characters; the tree's size is enforced at every request, not every two minutes, by evicting
the blocks that were sent least recently; among equally loaded replicas the one with the fewest
blocks in the tree is chosen, not the first.
"""

from collections.abc import Sequence

from sim.core.block_keys import BlockKeys
from sim.core.request import RequestSpec
from sim.des.routers.prefix_tree import PrefixTree
from sim.des.routers.router import Replica


class PrefixAware:
    """Chooses the replica that got the prompt's longest prefix, or the least loaded replica.

    The least loaded one is chosen if loads are uneven, or if too little of the prompt is known.

    Args:
        cache_threshold: while loads are even, choose by prefix if more than this share of the
            prompt is in the tree.
        balance_abs_threshold: loads are uneven if the largest exceeds the smallest by more than
            this ...
        balance_rel_threshold: ... and is more than this many times the smallest.
        max_tree_tokens: prompt tokens that the tree remembers for each replica.
        block_tokens: tokens in a block; prompts are compared block by block.
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
        # By index, the number under which the tree knows a replica.
        self._numbers: list[int] = []
        self._next_number = 0

    def choose(self, spec: RequestSpec, replicas: Sequence[Replica]) -> int:
        if not self._numbers:
            self.changed([-1] * len(replicas))
        keys = self._keys.of(spec.prompt.token_ids())
        loads = [replica.num_unfinished for replica in replicas]
        chosen = self._least_loaded(loads)
        if not self._are_uneven(loads):
            match = self._tree.match(keys)
            found_tokens = match.num_blocks * self._block_tokens
            if found_tokens > self._cache_threshold * len(spec.prompt):
                chosen = self._numbers.index(match.replica)
        self._tree.insert(keys, self._numbers[chosen])
        return chosen

    def changed(self, kept: Sequence[int]) -> None:
        """Forget what was sent to replicas that have left; nothing was sent to new ones yet."""
        numbers = []
        for before in kept:
            # Before the first choice, no replica was sent anything.
            is_new = before < 0 or not self._numbers
            numbers.append(self._next_number if is_new else self._numbers[before])
            self._next_number += is_new
        for number in set(self._numbers).difference(numbers):
            self._tree.forget(number)
        self._numbers = numbers

    def _are_uneven(self, loads: Sequence[int]) -> bool:
        least, most = min(loads), max(loads)
        return (
            most - least > self._balance_abs_threshold
            and most > self._balance_rel_threshold * least
        )

    def _least_loaded(self, loads: Sequence[int]) -> int:
        """The least loaded replica; if several are, the one with the fewest blocks in the tree."""
        least = min(loads)
        return min(
            (replica for replica, load in enumerate(loads) if load == least),
            key=lambda replica: self._tree.num_blocks(self._numbers[replica]),
        )

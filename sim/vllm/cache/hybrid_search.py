"""The prefix on which all groups of layers agree.

vLLM 0.19.0 and 0.33.0: `HybridKVCacheCoordinator` (v1/core/kv_cache_coordinator.py).
"""

from typing import Any

from sim.vllm.cache.single_type_manager import FULL, MAMBA, SingleTypeManager
from sim.vllm.request import NO_BLOCKS, BlockIds, CacheHit, RequestBlocks


class HybridSearch:
    """Looks for prefixes in several groups of layers."""

    def __init__(
        self,
        managers: list[SingleTypeManager[Any]],
        block_size: int,
        *,
        looks_behind: bool,
    ) -> None:
        """`looks_behind`: see `sim.vllm.scheduler.step_limits`."""
        self._looks_behind = looks_behind
        self._managers = managers
        self._block_size = block_size
        # Groups with the same rules are looked up together, those with full attention first.
        self._alike: list[list[int]] = []
        for kind in dict.fromkeys(manager.spec for manager in managers):
            alike = [i for i, manager in enumerate(managers) if manager.spec == kind]
            if kind.kind == FULL:
                self._alike.insert(0, alike)
            else:
                self._alike.append(alike)
        self._has_full = managers[self._alike[0][0]].spec.kind == FULL

    def find(self, kv: RequestBlocks, num_tokens: int) -> CacheHit:
        """The longest prefix, of at most `num_tokens` tokens, that every group can go on from.

        A group may agree with the others' prefix or shorten it. After one that shortens it, all are
        asked again. A prefix of layers with full attention may be cut anywhere, so they are asked
        once. If the last block is left out, and may lie behind the prefix, a group leaves it out
        once for each length that the others agree on. Such a block may end with a token of the
        prompt that only the decode server computes.
        """
        most = (num_tokens + 1 + kv.num_left_out) // self._block_size * self._block_size
        have_dropped: set[int] = set()
        size, longest, agreed = self._block_size, 0, num_tokens
        found: list[BlockIds] = [NO_BLOCKS for _ in self._managers]
        is_first = True
        while True:
            length = agreed
            for i, alike in enumerate(self._alike):
                if i == 0 and self._has_full and not is_first:
                    length = min(length, len(found[alike[0]]) * size)
                    continue
                blocks = self._find_alike(kv, i, length, most, have_dropped)
                for j, each in zip(alike, blocks, strict=True):
                    found[j] = each
                length = len(blocks[0]) * size
                longest = max(longest, length)
            is_first = False
            is_settled = length >= agreed
            agreed = min(agreed, length)
            if is_settled or len(self._alike) == 1 or (self._has_full and len(self._alike) == 2):
                break
        if self._has_full:
            for j in self._alike[0]:
                found[j] = found[j][: agreed // size]
        return CacheHit(agreed, found, longest)

    def find_one_by_one(self, kv: RequestBlocks, num_tokens: int) -> CacheHit | None:
        """What each group finds, if layers with full attention find most; else None.

        Only layers with full attention must have all tokens of the hit. A server with a KV
        connector looks for prefixes like this, because it can fetch the states that are missing
        (`get_computed_blocks_for_connector` of v1/core/kv_cache_manager.py).
        """
        size = self._block_size
        most = (num_tokens + 1 + kv.num_left_out) // size * size
        found: list[BlockIds] = [NO_BLOCKS for _ in self._managers]
        for i, alike in enumerate(self._alike):
            blocks = self._find_alike(kv, i, num_tokens, most, set())
            for j, each in zip(alike, blocks, strict=True):
                found[j] = each
        num_found = len(found[self._alike[0][0]])
        if any(len(blocks) > num_found for blocks in found):
            return None
        return CacheHit(num_found * size, found, 0)

    def _find_alike(
        self, kv: RequestBlocks, i: int, length: int, most: int, have_dropped: set[int]
    ) -> list[BlockIds]:
        """What the groups `i` have of the first `length` tokens; see `find`.

        `most`: tokens in full blocks; `have_dropped`: those that left out a block for this length.
        """
        managers = [self._managers[j] for j in self._alike[i]]
        drops, num_tokens = managers[0].drops_last and i not in have_dropped, length
        if drops and self._looks_behind and managers[0].spec.kind != MAMBA:
            num_tokens = min(length + self._block_size, most)
        blocks = managers[0].find_longest_cache_hit(kv, num_tokens, managers, drops_last=drops)
        if self._looks_behind and drops:
            have_dropped.add(i)
        elif len(blocks[0]) * self._block_size < length:
            have_dropped.clear()
        return blocks

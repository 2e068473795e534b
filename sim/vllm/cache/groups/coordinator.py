"""The prefix on which all groups of layers agree.

vLLM 0.19.0 and 0.33.0: `UnitaryKVCacheCoordinator` and `HybridKVCacheCoordinator`
(v1/core/kv_cache_coordinator.py).
"""

from sim.vllm.cache.groups.group import FULL
from sim.vllm.cache.groups.managers import GroupManager
from sim.vllm.cache.memory import Hit
from sim.vllm.cache.request_blocks import RequestBlocks


class Coordinator:
    """Looks for prefixes in all groups of layers."""

    def __init__(self, managers: list[GroupManager], block_size: int) -> None:
        self._managers = managers
        self._block_size = block_size
        # Groups with the same rules are looked up together, those with full attention first.
        self._alike: list[list[int]] = []
        for kind in dict.fromkeys(manager.group for manager in managers):
            alike = [i for i, manager in enumerate(managers) if manager.group == kind]
            if kind.kind == FULL:
                self._alike.insert(0, alike)
            else:
                self._alike.append(alike)
        self._has_full = managers[self._alike[0][0]].group.kind == FULL

    def find(self, kv: RequestBlocks, num_tokens: int, *, drops_last: bool) -> Hit:
        """The longest prefix, of at most `num_tokens` tokens, that every group can go on from.

        A group may agree with the others' prefix or shorten it. After one that shortens it, all are
        asked again. A prefix of layers with full attention may be cut anywhere, so they are asked
        once.
        """
        size, longest, agreed = self._block_size, 0, num_tokens
        found: list[list[int]] = [[] for _ in self._managers]
        is_first = True
        while True:
            length = agreed
            for i, alike in enumerate(self._alike):
                if i == 0 and self._has_full and not is_first:
                    length = min(length, len(found[alike[0]]) * size)
                    continue
                managers = [self._managers[j] for j in alike]
                blocks = managers[0].find(kv, length, managers, drops_last=drops_last)
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
                del found[j][agreed // size :]
        return Hit(agreed, found, longest)

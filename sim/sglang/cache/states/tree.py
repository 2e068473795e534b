"""States of state-space layers in the prefix cache: some nodes have the state at their end.

Follows SGLang 0.5.23's mem_cache/unified_cache/components/mamba.py (docs/explanation/sglang.md,
rules 30 to 33). A prefix can be used if its last node has a state. A unit of the pool is a state.
"""

from sim.sglang.cache.pool_tree import PoolTree
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.cache.tree.radix_node import PoolDatum, RadixNode
from sim.sglang.cache.unit_pool import UnitPool


class StateTree(PoolTree):
    """What the prefix cache knows of states."""

    divides = False

    def __init__(self, tree: RadixCache, pool: UnitPool) -> None:
        # Of a prefix, the state at its end alone is used.
        super().__init__(tree, pool, span=1, used_span=1)

    def datum(self, node: RadixNode) -> PoolDatum:
        return node.state

    def datum_of_copy(self, node: RadixNode) -> PoolDatum:
        return node.host.state

    def new_datum_of_copy(self, node: RadixNode) -> None:
        node.host.state = PoolDatum(node)

    def num_units(self, node: RadixNode) -> int:
        return 1

    def nodes_to_copy(self, node: RadixNode) -> list[RadixNode]:
        return [node] if node.state.holds and not node.host.state.holds else []

    def allows_end(self, node: RadixNode, num_tokens: int) -> bool:
        return node.state.holds and num_tokens == node.num_tokens

    def allows_loaded_end(self, node: RadixNode, num_tokens: int) -> bool:
        return self.is_held(node) and num_tokens == node.num_tokens

    def new_node(self, node: RadixNode) -> None:
        node.state = PoolDatum(node)
        if self.copies is not None:
            self.new_datum_of_copy(node)

    def split(self, upper: RadixNode, lower: RadixNode) -> None:
        """The state, and the locks on it, stay with the lower part."""
        upper.state = PoolDatum(upper)
        if self.copies is not None:
            self.new_datum_of_copy(upper)

    def give(self, node: RadixNode, *, is_new: bool) -> bool:
        """Offer the state at the end of a node, right after an insertion that ended there.

        Args:
            node: the node.
            is_new: the insertion has made it.

        Returns:
            Whether the node took the state: not if it has one.
        """
        if not is_new:
            self.tree.use(node)
        if node.state.holds:
            self.used(node)
            return False
        self.hold(node)
        return True

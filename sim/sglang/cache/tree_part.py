"""What a part of the KV memory adds to the prefix cache: the moments at which the tree tells it.

As in SGLang 0.5.23 (`TreeComponent` in mem_cache/unified_cache/components/base.py): a node of the
tree keeps a datum for each part, and the tree tells all parts of matches, insertions, splits and
evictions.
"""

from sim.sglang.cache.radix_node import RadixNode


class TreePart:
    """Base class of what a part adds to the tree; a method left out does nothing."""

    # ---- matches -------------------------------------------------------------------------------

    def begin_match(self) -> None:
        """A walk begins at the root."""

    def allows_end(self, node: RadixNode, num_tokens: int) -> bool:
        """Whether a usable prefix may end where the walk is now.

        Args:
            node: the node that the walk has come to; its parent was the one before.
            num_tokens: its first tokens that match.
        """
        return True

    def used(self, end: RadixNode) -> None:
        """A prefix that ends at this node was found."""

    # ---- insertions ----------------------------------------------------------------------------

    def begin_insert(self) -> None:
        """An insertion begins."""

    def overlapped(self, node: RadixNode) -> None:
        """An insertion came to a cached node, and freed pages of the same tokens."""

    def added_leaf(self, leaf: RadixNode) -> None:
        """An insertion has ended with a new leaf."""

    def end_insert(self, node: RadixNode) -> None:
        """An insertion has ended at this node."""

    # ---- nodes ---------------------------------------------------------------------------------

    def new_node(self, node: RadixNode) -> None:
        """Give a new node its datum."""

    def split(self, upper: RadixNode, lower: RadixNode) -> None:
        """The first tokens of a node, which is the lower one now, were moved to a new parent."""

    def drop(self, node: RadixNode) -> None:
        """Free what an unlocked node holds in the part's pool, if it holds something."""

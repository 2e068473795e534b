"""What a store keeps beside the pages of a prompt: those of layers with windows, and states.

Follows SGLang 0.5.23, mem_cache/unified_cache/components/swa.py and mamba.py: `prepare_prefetch`,
`build_hicache_transfers` and `commit_hicache_transfer`.
"""

from collections.abc import Sequence
from typing import Final

from sim.core.tokens import mixed
from sim.engine.store import WHOLE_PAGE, Pages, Store
from sim.sglang.cache.host.memory import PoolCopies
from sim.sglang.cache.tree.radix_node import RadixNode


class StoredPart:
    """A part's copies in host memory, and their pages in the store.

    With windows, each page of a prompt has a page beside it. With states, the last page of a node
    has the state at its end.

    Attributes:
        copies: those in host memory.
        page_units: units of the part's pool in such a page.
        page_size: of such a page, as part of a whole one (see `sim.engine.store.WHOLE_PAGE`).
    """

    def __init__(self, copies: PoolCopies, page_tokens: int, number: int) -> None:
        """`page_tokens`: tokens in a page. `number`: tells the parts apart."""
        self.copies: Final = copies
        self.page_units: Final = page_tokens if copies.tree.divides else 1
        whole_pages = self.page_units * copies.copy_tokens / page_tokens
        self.page_size: Final = max(round(whole_pages * WHOLE_PAGE), 1)
        # Pages before the end of a prefix that it needs.
        self._num_needed = -(-copies.tree.span // page_tokens)
        self._mask = mixed(number)

    def num_to_fetch(self, num_pages: int, *, at_root: bool) -> int:
        """How many of a prompt's last pages need one beside them, if as many pages are fetched.

        A window that begins before these pages would have to be there already, which SGLang does
        not check: it fetches none.
        """
        if num_pages >= self._num_needed:
            return self._num_needed
        return num_pages if at_root else 0

    def key(self, page_key: int) -> int:
        return page_key ^ self._mask

    def pages(self, page_keys: Sequence[int]) -> Pages:
        """The pages beside these pages of a prompt."""
        return Pages([self.key(page_key) for page_key in page_keys], self.page_size)

    def pages_of(self, node: RadixNode, page_keys: Sequence[int]) -> Pages | None:
        """What goes to the store beside a node's pages; None: nothing."""
        if not self.copies.has_copy(node):
            return None
        num_pages = self.copies.tree.num_units(node) // self.page_units
        return self.pages(page_keys[len(page_keys) - num_pages :])

    def insert(self, anchor: RadixNode, target: RadixNode | None, num_units: int) -> int:
        """Give fetched units to the nodes between these two; returns how many are left over.

        `target` is the node at the end of what was fetched after `anchor`; None: the tree has no
        copy there.
        """
        if target is None or not num_units:
            return num_units
        if self.copies.tree.divides:
            if anchor.parent is not None and num_units < self._num_needed * self.page_units:
                return num_units
            return self._insert_window(anchor, target, num_units)
        if self.copies.has_copy(target):
            return num_units
        self.copies.give(target)
        return 0

    def _insert_window(self, anchor: RadixNode, target: RadixNode, num_units: int) -> int:
        """`insert` for a window: it ends at `target`. Nodes that have a copy keep it."""
        num_left = 0
        start, end, node = target.end - num_units, target.end, target
        while node is not anchor and end > start:
            begin = node.end - node.num_tokens
            first = max(begin, start)
            if self.copies.has_copy(node):
                num_left += end - first
            else:
                if first > begin:
                    self.copies.tree.tree.split(node, first - begin)
                self.copies.give(node)
            end, node = begin, node.required_parent()
        return num_left + max(end - start, 0)


class FetchedPart:
    """What a fetch brings of a part.

    Attributes:
        part: the part.
        num_pages: how many pages it needs.
        num_units: units that it has in host memory.
        pages: those that are read; None: the pages of the prompt are not all there yet.
        num_read: pages that were read, as far as the scheduler knows.
    """

    def __init__(self, part: StoredPart, num_pages: int) -> None:
        self.part: Final = part
        self.num_pages: Final = num_pages
        self.num_units = self.num_read = 0
        self.pages: Pages | None = None

    @property
    def is_whole(self) -> bool:
        return self.pages is not None and self.num_read == len(self.pages.keys)

    def reserve(self, num_found: int) -> bool:
        """Get units in host memory for what belongs to `num_found` pages; False: too few free."""
        num_units = min(self.num_pages, num_found) * self.part.page_units
        if not self.part.copies.reserve(num_units):
            return False
        self.num_units = num_units
        return True

    def choose(self, page_keys: Sequence[int]) -> int:
        """These pages of the prompt are there; returns how many units are not needed for them."""
        keys = page_keys[max(len(page_keys) - self.num_pages, 0) :]
        self.pages = self.part.pages(keys)
        num_left = max(self.num_units - len(keys) * self.part.page_units, 0)
        self.num_units -= num_left
        return num_left

    def give_back(self) -> int:
        """All units, which are not needed any more."""
        num_units, self.num_units = self.num_units, 0
        return num_units


def num_restorable(store: Store, page_keys: Sequence[int], parts: Sequence[FetchedPart]) -> int:
    """The longest prefix of these pages that the store has with all that its end needs.

    As in SGLang 0.5.23, `HiCacheFile.batch_exists_v2` in mem_cache/hicache_storage.py.
    """
    num_found = store.num_found(page_keys)
    if not parts:
        return num_found
    longest, runs = 0, [0] * len(parts)
    for i in range(num_found):
        is_end = True
        for number, each in enumerate(parts):
            has_page = store.has(each.part.key(page_keys[i]))
            runs[number] = runs[number] + 1 if has_page else 0
            is_end = is_end and runs[number] >= min(each.num_pages, i + 1)
        if is_end:
            longest = i + 1
    return longest

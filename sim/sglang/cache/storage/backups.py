"""Copies of nodes in host memory that go to the store.

Follows SGLang 0.5.23: `write_backup_storage` in mem_cache/unified_radix_cache.py.
"""

from collections.abc import Sequence

from sim.sglang.cache.host.tree import HostTree
from sim.sglang.cache.storage.parts import StoredPart
from sim.sglang.cache.storage.threads import Backup, StorageThreads
from sim.sglang.cache.tree.radix_cache import PathKeys
from sim.sglang.cache.tree.radix_node import RadixNode


class Backups:
    """The copies under way."""

    def __init__(
        self, host: HostTree, threads: StorageThreads, parts: Sequence[StoredPart], keys: PathKeys
    ) -> None:
        self._host = host
        self._threads = threads
        self._parts = parts
        self._keys = keys
        self._under_way: dict[Backup, None] = {}
        self._to_write: list[Backup] = []

    def add(self, node: RadixNode) -> None:
        """A node's copy in host memory is complete."""
        if node.host.pages is None:
            return
        keys = self._keys.of_node(node)
        beside = [part.pages_of(node, keys) for part in self._parts]
        locks = self._host.lock_copies(node)
        backup = Backup(node, locks, keys, [pages for pages in beside if pages is not None])
        self._under_way[backup] = None
        self._to_write.append(backup)

    def hand_over(self) -> None:
        """Give the writing thread the copies that are complete.

        Those that become complete while results are taken in wait for the next decision.
        """
        for backup in self._to_write:
            self._threads.write(backup)
        self._to_write.clear()

    def end(self, written: Sequence[Backup]) -> None:
        """The store has these copies, or their writing has failed."""
        for backup in written:
            del self._under_way[backup]
            self._host.unlock_copies(backup.node, backup.locks)

    def locks(self) -> list[tuple[RadixNode, int]]:
        """The ends and starts of the prefixes whose KV in host memory is locked for copies."""
        return [(each.node, each.locks[0]) for each in self._under_way]

    @property
    def are_under_way(self) -> bool:
        return bool(self._under_way)

    @property
    def waits_for_decision(self) -> bool:
        return bool(self._to_write)

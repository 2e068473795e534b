"""What a server's storage threads do: one looks prompts up, one reads pages, one writes them.

As in SGLang 0.5.23 (`prefetch_thread_func`, `prefetch_io_aux_func` and `backup_thread_func` in
managers/cache_controller.py): each does one thing after another, and the scheduler takes in what
they have done when a decision begins. What a decision gives them to do they begin when it is over.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from sim.engine.page_pool import Span
from sim.engine.store import Job, Store
from sim.sglang.cache.tree.radix_node import RadixNode
from sim.sglang.request import SglangRequest

# SGLang's STORAGE_BATCH_SIZE: pages that are read or written together.
_PAGES_OF_BATCH = 128


class Fetch:
    """The fetch of a part of a prompt from the store to host memory.

    Attributes:
        request: whose prompt it is.
        anchor, lock: the node after which the part begins, and its lock in host memory.
        start: where the part begins, in tokens.
        num_tokens: how long it is; whole pages.
        keys: of its pages.
        is_known: the pages were found before, and are not looked up again.
        num_found: pages to be fetched: what the lookup has found, as far as host memory has room.
        pages: where they go in host memory; None: nothing is allocated yet.
        num_read, num_done: pages that were read, and those of them that the scheduler knows of.
        is_terminated: the scheduler wants no more of it.
        is_late: it has ended by its time-out.
    """

    def __init__(
        self,
        request: SglangRequest,
        anchor: RadixNode,
        lock: int,
        *,
        start: int,
        keys: list[int],
        page_size: int,
        is_known: bool,
    ) -> None:
        self.request: Final = request
        self.anchor: Final = anchor
        self.lock: Final = lock
        self.start: Final = start
        self.keys: Final = keys
        self.num_tokens: Final = len(keys) * page_size
        self.is_known: Final = is_known
        self.num_found = self.num_read = self.num_done = 0
        self.pages: Span | None = None
        self.is_terminated = self.is_late = False


class Backup:
    """A copy of a node in host memory that goes to the store.

    Attributes:
        node, lock: the node, and its lock in host memory.
        keys: of its pages.
        num_written: pages that are written, or were there.
    """

    def __init__(self, node: RadixNode, lock: int, keys: list[int]) -> None:
        self.node: Final = node
        self.lock: Final = lock
        self.keys: Final = keys
        self.num_written = 0


class ReadPages:
    """What a thread says of a fetch: how many pages are read, or that it is over (`is_last`)."""

    def __init__(self, fetch: Fetch, num_read: int, *, is_last: bool) -> None:
        self.fetch: Final = fetch
        self.num_read: Final = num_read
        self.is_last: Final = is_last


class StorageThreads:
    """The threads of one server.

    Attributes:
        store: the store.
        looked_up, read, written: what they have done since the scheduler last took it.
    """

    def __init__(self, store: Store) -> None:
        self.use(store)
        self._to_look_up: deque[Fetch] = deque()
        self._to_read: deque[Fetch] = deque()
        self._to_write: deque[Backup] = deque()
        self._looking: Fetch | None = None
        self._reading: Fetch | None = None
        self._writing: Backup | None = None
        self._batch: Sequence[int] = ()
        self._written_batch: Sequence[int] = ()
        self._num_new = 0
        self._jobs: dict[str, Job] = {}
        self.looked_up: list[Fetch] = []
        self.read: list[ReadPages] = []
        self.written: list[Backup] = []

    def use(self, store: Store) -> None:
        """Use this store. Only before anything is under way."""
        self.store = store
        store.starters.append(self._start)

    def look_up(self, fetch: Fetch) -> None:
        self._to_look_up.append(fetch)

    def fetch(self, fetch: Fetch) -> None:
        self._to_read.append(fetch)

    def write(self, backup: Backup) -> None:
        self._to_write.append(backup)

    # ---- time ----------------------------------------------------------------------------------

    def advance(self, now_ns: int) -> None:
        self.store.advance(now_ns)

    def next_ns(self) -> int | None:
        """The earliest time at which a thread may have done something; None: all are idle."""
        self.store.advance(self.store.now_ns)
        if self.looked_up or self.read or self.written:
            return self.store.now_ns
        ends = [self.store.end_ns(job) for job in self._jobs.values()]
        return min(ends) if ends else None

    def _start(self) -> None:
        """Threads without work take what waits for them."""
        if self._looking is None:
            self._next_lookup()
        if self._reading is None:
            self._next_read()
        if self._writing is None:
            self._next_write()

    # ---- lookups -------------------------------------------------------------------------------

    def _next_lookup(self) -> None:
        self._looking = None
        self._jobs.pop("lookup", None)
        while self._to_look_up:
            fetch = self._to_look_up.popleft()
            if fetch.is_terminated or fetch.is_known:
                fetch.num_found = 0 if fetch.is_terminated else len(fetch.keys)
                self.looked_up.append(fetch)
                continue
            self._looking = fetch
            self._jobs["lookup"] = self.store.look_up(self._end_lookup)
            return

    def _end_lookup(self) -> None:
        fetch = self._looking
        if fetch is not None:
            fetch.num_found = self.store.num_found(fetch.keys)
            self.looked_up.append(fetch)
        self._next_lookup()

    # ---- reads ---------------------------------------------------------------------------------

    def _next_read(self) -> None:
        self._reading = None
        self._jobs.pop("read", None)
        while self._to_read and self._reading is None:
            self._reading = self._to_read.popleft()
            self._next_batch(self._reading)

    def _next_batch(self, fetch: Fetch) -> None:
        """Read the next pages of a fetch, or end it."""
        if fetch.num_read == fetch.num_found or fetch.is_terminated:
            self.read.append(ReadPages(fetch, fetch.num_read, is_last=True))
            self._reading = None
            return
        end = min(fetch.num_read + _PAGES_OF_BATCH, fetch.num_found)
        self._batch = fetch.keys[fetch.num_read : end]
        self._jobs["read"] = self.store.read(len(self._batch), self._end_batch)

    def _end_batch(self) -> None:
        fetch = self._reading
        if fetch is None:
            return
        num_read = self.store.take(self._batch)
        if fetch.is_terminated:  # SGLang asks before each page goes to host memory, so none does.
            num_read = 0
        fetch.num_read += num_read
        self.read.append(ReadPages(fetch, fetch.num_read, is_last=False))
        if num_read == len(self._batch):
            self._next_batch(fetch)
        else:
            self.read.append(ReadPages(fetch, fetch.num_read, is_last=True))
            self._reading = None
        if self._reading is None:
            self._next_read()

    # ---- writes --------------------------------------------------------------------------------

    def _next_write(self) -> None:
        self._writing = None
        self._jobs.pop("write", None)
        if self._to_write:
            self._writing = self._to_write.popleft()
            self._write_batch(self._writing)

    def _write_batch(self, backup: Backup) -> None:
        start = backup.num_written
        self._written_batch = backup.keys[start : start + _PAGES_OF_BATCH]
        self._num_new = self.store.num_missing(self._written_batch)
        self._jobs["write"] = self.store.write(self._num_new, self._end_write)

    def _end_write(self) -> None:
        backup = self._writing
        if backup is None:
            return
        is_kept = self.store.keep(self._written_batch, num_new=self._num_new)
        if is_kept:
            backup.num_written += len(self._written_batch)
        if is_kept and backup.num_written < len(backup.keys):
            self._write_batch(backup)
            return
        self.written.append(backup)
        self._next_write()

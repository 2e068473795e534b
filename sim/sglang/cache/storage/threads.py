"""What a server's storage threads do: one looks prompts up, one reads pages, one writes them.

As in SGLang 0.5.23 (`prefetch_thread_func`, `prefetch_io_aux_func` and `backup_thread_func` in
managers/cache_controller.py): each does one thing after another, and the scheduler takes in what
they have done when a decision begins. What a decision gives them to do they begin when it is over.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from sim.engine.page_pool import Span
from sim.engine.store import Job, Pages, Store, num_of
from sim.sglang.cache.storage.parts import FetchedPart, num_restorable
from sim.sglang.cache.tree.radix_node import RadixNode
from sim.sglang.request import SglangRequest

# SGLang's STORAGE_BATCH_SIZE: pages that are read or written together.
_PAGES_OF_BATCH = 128


class Fetch:
    """The fetch of a part of a prompt from the store to host memory.

    Attributes:
        request: whose prompt it is.
        anchor, locks: the node after which the part begins, and its locks in host memory.
        start: where the part begins, in tokens.
        num_tokens: how long it is; whole pages.
        keys: of its pages.
        is_known: the pages were found before, and are not looked up again.
        num_found: pages to be fetched: what the lookup has found, as far as host memory has room.
        pages: where they go in host memory; None: nothing is allocated yet.
        num_read, num_done: pages that were read, and those of them that the scheduler knows of.
        parts: what is fetched beside the pages, once all of them have been read.
        are_parts_over: the scheduler knows how much of that was read.
        is_terminated: the scheduler wants no more of it.
        is_late: it has ended by its time-out.
    """

    def __init__(
        self,
        request: SglangRequest,
        anchor: RadixNode,
        locks: list[int],
        *,
        start: int,
        keys: list[int],
        page_size: int,
        is_known: bool,
    ) -> None:
        self.request: Final = request
        self.anchor: Final = anchor
        self.locks: Final = locks
        self.start: Final = start
        self.keys: Final = keys
        self.num_tokens: Final = len(keys) * page_size
        self.is_known: Final = is_known
        self.num_found = self.num_read = self.num_done = 0
        self.pages: Span | None = None
        self.parts: list[FetchedPart] = []
        self.are_parts_over = self.is_terminated = self.is_late = False

    @property
    def is_whole(self) -> bool:
        """Whether all has come, as far as the scheduler knows."""
        return self.num_done == self.num_found and all(part.is_whole for part in self.parts)


class Backup:
    """A copy of a node in host memory that goes to the store.

    Attributes:
        node, locks: the node, and its locks in host memory.
        keys: of its pages.
        beside: what is written before them; empty: nothing, or no more.
        num_written: pages that are written, or were there.
    """

    def __init__(
        self, node: RadixNode, locks: list[int], keys: list[int], beside: list[Pages]
    ) -> None:
        self.node: Final = node
        self.locks: Final = locks
        self.keys: Final = keys
        self.beside = beside
        self.num_written = 0


class ReadPages:
    """What a thread says of a fetch: how many pages are read, or that it is over.

    Attributes:
        fetch: the fetch.
        num_read: pages of the prompt.
        of_parts: at the end, pages of each part; None: it goes on.
    """

    def __init__(self, fetch: Fetch, num_read: int, of_parts: list[int] | None = None) -> None:
        self.fetch: Final = fetch
        self.num_read: Final = num_read
        self.of_parts: Final = of_parts


class StorageThreads:
    """The threads of one server.

    Attributes:
        store: the store.
        looked_up, read, written: what they have done since the scheduler last took it.
        given_back: units in host memory that turned out not to be needed.
    """

    def __init__(self, store: Store, page_size: int) -> None:
        """`page_size`: of a page of a prompt; see `Pages`."""
        self.use(store)
        self._page_size = page_size
        self._to_look_up: deque[Fetch] = deque()
        self._to_read: deque[Fetch] = deque()
        self._to_write: deque[Backup] = deque()
        self._looking: Fetch | None = None
        self._reading: Fetch | None = None
        self._writing: Backup | None = None
        self._batch = Pages(())
        self._written: Sequence[Pages] = ()
        self._num_new = 0
        self._jobs: dict[str, Job] = {}
        self.looked_up: list[Fetch] = []
        self.read: list[ReadPages] = []
        self.written: list[Backup] = []
        self.given_back: list[tuple[FetchedPart, int]] = []

    def use(self, store: Store) -> None:
        """Use this store. Only before anything is under way."""
        self.store, self._place = store, len(store.starters)
        store.starters.append(self._start)

    def look_up(self, fetch: Fetch) -> None:
        self._to_look_up.append(fetch)
        self.store.ask(self._place)

    def fetch(self, fetch: Fetch) -> None:
        self._to_read.append(fetch)
        self.store.ask(self._place)

    def write(self, backup: Backup) -> None:
        self._to_write.append(backup)
        self.store.ask(self._place)

    # ---- time ----------------------------------------------------------------------------------

    def advance(self, now_ns: int) -> None:
        self.store.advance(now_ns)

    def next_ns(self) -> int | None:
        """The earliest time at which a thread may have done something; None: all are idle."""
        self.store.advance(self.store.now_ns)
        if self.looked_up or self.read or self.written or self.given_back:
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
            fetch.num_found = num_restorable(self.store, fetch.keys, fetch.parts)
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
        """Read the next pages of a fetch, or what comes after the last one."""
        if fetch.num_read < fetch.num_found and not fetch.is_terminated:
            end = min(fetch.num_read + _PAGES_OF_BATCH, fetch.num_found)
            self._batch = Pages(fetch.keys[fetch.num_read : end], self._page_size)
            self._jobs["read"] = self.store.read([self._batch], self._end_batch)
        else:
            self._read_parts(fetch)

    def _end_batch(self) -> None:
        fetch = self._reading
        if fetch is None:
            return
        num_read = self.store.take(self._batch)
        if fetch.is_terminated:  # SGLang asks before each page goes to host memory, so none does.
            num_read = 0
        fetch.num_read += num_read
        self.read.append(ReadPages(fetch, fetch.num_read))
        if num_read == len(self._batch.keys):
            self._next_batch(fetch)
        else:
            self._end_fetch(fetch, [0] * len(fetch.parts))
        if self._reading is None:
            self._next_read()

    def _read_parts(self, fetch: Fetch) -> None:
        """Read what belongs to the pages of a fetch, if all of them have come, or end it.

        `_page_transfer_sidecar` in mem_cache/hybrid_cache/hybrid_cache_controller.py.
        """
        if not fetch.parts or fetch.is_terminated or fetch.num_read < fetch.num_found:
            self._end_fetch(fetch, [0] * len(fetch.parts))
            return
        pages: list[Pages] = []
        for part in fetch.parts:
            if num_left := part.choose(fetch.keys[: fetch.num_found]):
                self.given_back.append((part, num_left))
            if part.pages is not None:
                pages.append(part.pages)
        self._jobs["read"] = self.store.read(pages, self._end_parts)

    def _end_parts(self) -> None:
        fetch = self._reading
        if fetch is not None:
            pages = [part.pages for part in fetch.parts if part.pages is not None]
            self._end_fetch(fetch, [self.store.take(each) for each in pages])
        self._next_read()

    def _end_fetch(self, fetch: Fetch, of_parts: list[int]) -> None:
        self.read.append(ReadPages(fetch, fetch.num_read, of_parts))
        self._reading = None

    # ---- writes --------------------------------------------------------------------------------

    def _next_write(self) -> None:
        self._writing = None
        self._jobs.pop("write", None)
        if self._to_write:
            self._writing = self._to_write.popleft()
            self._write_more(self._writing)

    def _write_more(self, backup: Backup) -> None:
        """Write what goes beside the pages of a node, then the next of these."""
        pages = backup.beside
        if not pages:
            start = backup.num_written
            pages = [Pages(backup.keys[start : start + _PAGES_OF_BATCH], self._page_size)]
        self._written = pages
        missing = self.store.missing(pages)
        self._num_new = num_of(missing)
        self._jobs["write"] = self.store.write(missing, self._end_write)

    def _end_write(self) -> None:
        backup = self._writing
        if backup is None:
            return
        is_kept = self.store.keep(self._written, num_new=self._num_new)
        if backup.beside:
            # The node's pages are written even if this has failed.
            is_kept, backup.beside = True, []
        elif is_kept:
            backup.num_written += len(self._written[0].keys)
        if is_kept and backup.num_written < len(backup.keys):
            self._write_more(backup)
            return
        self.written.append(backup)
        self._next_write()

"""A store for KV pages that servers write to and read from: what it keeps, and how long it takes.

A read or a write of pages takes a latency for each round of `pages_at_once` pages, then their bytes
at the bandwidth of its direction. Those that run at the same time share this bandwidth evenly. An
operation finds, and changes, what the store keeps when it ends.
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sim.engine.page_pool import CacheListener


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """How large and how fast a store is.

    Attributes:
        capacity_pages: whole pages that fit; None: any number. The least recently read or written
            ones make room.
        lookup_ns: time to look up the pages of a prompt.
        read_latency_ns, write_latency_ns: time before the first byte.
        read_ns_per_page, write_ns_per_page: time to transfer a whole page at full bandwidth.
        pages_at_once: pages of one operation that are waited for together.
        failed_read_share: the share of pages whose read fails.
        failed_write_share: the share of writes that fail.
        seed: draws which of them.
        is_shared: all servers of a run have one such store together, and not each one of its own.
    """

    capacity_pages: int | None = None
    lookup_ns: float = 0.0
    read_latency_ns: float = 0.0
    write_latency_ns: float = 0.0
    read_ns_per_page: float = 0.0
    write_ns_per_page: float = 0.0
    pages_at_once: int = 1
    failed_read_share: float = 0.0
    failed_write_share: float = 0.0
    seed: int = 0
    is_shared: bool = False


# The size of a page with the KV of all layers; other pages are smaller or larger.
WHOLE_PAGE: Final = 1 << 20
# Less is no transfer: the operation ends with its latency.
_LEAST_WORK_NS = 0.5


class Pages:
    """Pages of one size.

    Attributes:
        keys: theirs.
        size: of each; see `WHOLE_PAGE`.
    """

    def __init__(self, keys: Sequence[int], size: int = WHOLE_PAGE) -> None:
        self.keys: Final = keys
        self.size: Final = size


def num_of(pages: Sequence[Pages]) -> int:
    """How many pages these are."""
    return sum([len(each.keys) for each in pages])


def _whole_pages(pages: Sequence[Pages]) -> float:
    """How many whole pages are as large."""
    return sum([len(each.keys) * each.size for each in pages]) / WHOLE_PAGE


class Job:
    """An operation that takes time.

    Attributes:
        end: called when it ends.
        work_ns: what it still has to transfer, as time at full bandwidth.
    """

    def __init__(self, end: Callable[[], None], work_ns: float) -> None:
        self.end: Final = end
        self.work_ns = work_ns


class Direction:
    """The bandwidth of reads or of writes: what is transferred at the same time has equal shares.

    Attributes:
        jobs: what is transferred now, in order of its start.
    """

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self._since_ns = 0

    def _pass_time(self, now_ns: int) -> None:
        share = (now_ns - self._since_ns) / max(len(self.jobs), 1)
        for job in self.jobs:
            job.work_ns -= share
        self._since_ns = now_ns

    def begin(self, job: Job, now_ns: int) -> None:
        self._pass_time(now_ns)
        self.jobs.append(job)

    def first(self) -> tuple[int, Job] | None:
        """When the first of the jobs ends, and which; None: there is none."""
        if not self.jobs:
            return None
        job = min(self.jobs, key=_work_of)
        return self._since_ns + max(round(job.work_ns * len(self.jobs)), 0), job

    def end(self, job: Job, now_ns: int) -> None:
        self._pass_time(now_ns)
        self.jobs.remove(job)

    def end_ns(self, job: Job) -> int:
        """When a job that is transferred now ends if none begins before."""
        smaller = [other.work_ns for other in self.jobs if other.work_ns < job.work_ns]
        # For the first one the same sum as in `first`, with the same rounding.
        work_ns = sum(smaller) + job.work_ns * (len(self.jobs) - len(smaller))
        return self._since_ns + max(round(work_ns), 0)


def _work_of(job: Job) -> float:
    return job.work_ns


class Store:
    """Pages by their keys, the least recently used one first.

    Its time goes on when a server says so (`advance`). Servers say it in the order of time.

    Attributes:
        settings: how large and how fast it is.
        now_ns: how far its time has come.
        starters: one of each server that asks: it begins the operations that the server's threads
            are to do next.
        listeners: are told which pages it keeps.
    """

    def __init__(self, settings: StoreSettings, draw: Callable[[], float]) -> None:
        """`draw`: draws numbers from 0 to below 1, which decide what fails."""
        self.settings = settings
        self.now_ns = 0
        self.starters: list[Callable[[], None]] = []
        # Of servers that have got something to do since time last went on: places in `starters`.
        self._asking: set[int] = set()
        self.listeners: list[CacheListener] = []
        # The sizes of the pages by their keys, used least recently first, and their sum. The oldest
        # key of a plain dictionary is found slowly after many others were deleted.
        self._sizes: OrderedDict[int, int] = OrderedDict()
        self._used = 0
        self._draw = draw
        # When latencies end, a number that keeps their order, the job, and where it goes on.
        self._latencies: list[tuple[int, int, Job, Direction | None]] = []
        self._num_jobs = 0
        self._reads, self._writes = Direction(), Direction()

    # ---- time ----------------------------------------------------------------------------------

    def ask(self, place: int) -> None:
        """Before time goes on, call the starter at this place of `starters`."""
        self._asking.add(place)

    def advance(self, now_ns: int) -> None:
        """Let time go on until now, and end the operations that end until then."""
        if self._asking:
            asking, self._asking = sorted(self._asking), set()
            for place in asking:
                self.starters[place]()
        while True:
            event_ns, job, direction = self._next()
            if job is None or event_ns > now_ns:
                break
            self.now_ns = event_ns
            if direction is not None:
                direction.end(job, event_ns)
                job.end()
                continue
            _, _, job, direction = heapq.heappop(self._latencies)
            if direction is None:
                job.end()
            else:
                direction.begin(job, event_ns)
        self.now_ns = max(self.now_ns, now_ns)

    def _next(self) -> tuple[int, Job | None, Direction | None]:
        """When something happens next, to which job, and the direction that it ends in, if any."""
        event_ns, event_job, where = 0, None, None
        if self._latencies:
            event_ns, _, event_job, _ = self._latencies[0]
        for direction in (self._reads, self._writes):
            first = direction.first()
            if first is not None and (event_job is None or first[0] < event_ns):
                (event_ns, event_job), where = first, direction
        return event_ns, event_job, where

    def end_ns(self, job: Job) -> int:
        """The earliest time at which a job may end; it ends later if others begin before."""
        for direction in (self._reads, self._writes):
            if job in direction.jobs:
                return direction.end_ns(job)
        for latency_ns, _, each, _ in self._latencies:
            if each is job:
                return latency_ns + round(job.work_ns)
        return self.now_ns

    def _begin(self, job: Job, latency_ns: float, direction: Direction | None) -> Job:
        if direction is not None and not direction.jobs and not self._awaits(direction):
            # Alone, it takes a whole number of nanoseconds in all.
            whole_ns = round(latency_ns + job.work_ns)
            latency_ns = float(round(latency_ns))
            job.work_ns = whole_ns - latency_ns
        if job.work_ns < _LEAST_WORK_NS:
            direction = None
        self._num_jobs += 1
        end_ns = self.now_ns + round(latency_ns)
        heapq.heappush(self._latencies, (end_ns, self._num_jobs, job, direction))
        return job

    def _awaits(self, direction: Direction) -> bool:
        """Whether a job waits for its latency before it goes on in this direction."""
        return any(each[3] is direction for each in self._latencies)

    def _rounds(self, num_pages: int) -> int:
        return -(-num_pages // self.settings.pages_at_once)

    # ---- operations ----------------------------------------------------------------------------

    def later(self, delay_ns: float, end: Callable[[], None]) -> Job:
        """Let something happen after a while."""
        return self._begin(Job(end, 0.0), delay_ns, None)

    def look_up(self, end: Callable[[], None]) -> Job:
        """Begin to look up pages; in the end, `num_found` and `has` say which there are."""
        return self.later(self.settings.lookup_ns, end)

    def read(self, pages: Sequence[Pages], end: Callable[[], None]) -> Job:
        """Begin to read pages; in the end, `take` says how many came."""
        settings = self.settings
        latency_ns = self._rounds(num_of(pages)) * settings.read_latency_ns
        work_ns = _whole_pages(pages) * settings.read_ns_per_page
        return self._begin(Job(end, work_ns), latency_ns, self._reads)

    def write(self, pages: Sequence[Pages], end: Callable[[], None]) -> Job:
        """Begin to write pages; in the end, `keep` keeps them."""
        settings = self.settings
        latency_ns = self._rounds(num_of(pages)) * settings.write_latency_ns
        work_ns = _whole_pages(pages) * settings.write_ns_per_page
        return self._begin(Job(end, work_ns), latency_ns, self._writes)

    # ---- pages ---------------------------------------------------------------------------------

    @property
    def num_pages(self) -> int:
        return len(self._sizes)

    def has(self, key: int) -> bool:
        return key in self._sizes

    def num_found(self, keys: Sequence[int]) -> int:
        """How many pages, from the first on, are there without a gap."""
        for i, key in enumerate(keys):
            if key not in self._sizes:
                return i
        return len(keys)

    def missing(self, pages: Sequence[Pages]) -> list[Pages]:
        """Those of the pages that are not there."""
        sizes = self._sizes
        return [Pages([key for key in each.keys if key not in sizes], each.size) for each in pages]

    def take(self, pages: Pages) -> int:
        """End a read; returns how many pages it has brought, from the first on.

        It ends before a page that is gone or cannot be read.
        """
        share = self.settings.failed_read_share
        for i, key in enumerate(pages.keys):
            if key not in self._sizes or (share and self._draw() < share):
                return i
            self._use(key, pages.size)
        return len(pages.keys)

    def keep(self, pages: Sequence[Pages], *, num_new: int) -> bool:
        """End a write of these pages; returns False if it has failed.

        `num_new` of them were written; without any, it cannot fail.
        """
        share = self.settings.failed_write_share
        if num_new and share and self._draw() < share:
            return False
        gone: list[int] = []
        for each in pages:
            for key in each.keys:
                self._use(key, each.size)
                gone += self._made_room()
        kept = self._sizes
        for listener in self.listeners:  # A page may have gone and come again.
            listener.stored([key for each in pages for key in each.keys if key in kept])
            listener.removed([key for key in gone if key not in kept])
        return True

    def _use(self, key: int, size: int) -> None:
        self._used += size - self._sizes.pop(key, 0)
        self._sizes[key] = size

    def _made_room(self) -> list[int]:
        """Drop the pages used least recently until all fit; returns them."""
        gone: list[int] = []
        capacity = self.settings.capacity_pages
        while capacity is not None and self._used > capacity * WHOLE_PAGE and self._sizes:
            key, size = self._sizes.popitem(last=False)
            gone.append(key)
            self._used -= size
        return gone

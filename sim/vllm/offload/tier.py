"""What lies below CPU memory.

Chunks are written there as soon as they are in CPU memory, and read from there into CPU memory when
a waiting request needs them.

The time of reads and writes is that of the store (`sim.engine.store`). The scheduler gives jobs to
threads, and looks once in each decision which jobs are over.

vLLM 0.33.0: v1/kv_offload/tiering: `TieringOffloadingManager` (manager.py), `FileSystemTierManager`
(fs/manager.py) with `DualQueueThreadPool` (fs/thread_pool.py), and
`ObjectStoreSecondaryTierManager` (obj/manager.py).
"""

from collections import deque
from collections.abc import Callable, Sequence

from sim.engine.store import Job, Pages, Store, num_of
from sim.vllm.offload.lookups import Lookups
from sim.vllm.offload.policies import Access, ChunkKey
from sim.vllm.offload.pressure import Pressure
from sim.vllm.offload.settings import TierSettings

# More threads than jobs: each job has one of its own.
_ANY_NUMBER = 1 << 60


class TierJob:
    """Chunks that are read from the tier, or written to it, together.

    Attributes:
        keys: the chunks.
        pages: their names in the store.
        is_load: they are read.
        submitted_ns: when the threads get it.
        num_done: how many chunks, from the first on, are read or written when it is over.
        job: what the store does for it; None: it waits for a thread, or is over.
    """

    def __init__(
        self, keys: Sequence[ChunkKey], pages: Pages, *, is_load: bool, submitted_ns: int
    ) -> None:
        self.keys = keys
        self.pages = pages
        self.is_load = is_load
        self.submitted_ns = submitted_ns
        self.num_done = 0
        self.job: Job | None = None


class Threads:
    """Threads that read and write: some take loads first, the others stores.

    Attributes:
        ended: jobs that are over, of which the scheduler does not know yet, in order.
        running: those that are under way.
    """

    def __init__(self, store: Store, settings: TierSettings) -> None:
        self.store = store
        self.ended: list[TierJob] = []
        self.running: list[TierJob] = []
        self._is_whole = settings.kind == "obj"
        self._loads: deque[TierJob] = deque()
        self._stores: deque[TierJob] = deque()
        # Of each kind of threads, those without work.
        self._num_readers, self._num_writers = settings.n_read_threads, settings.n_write_threads
        if self._is_whole:
            self._num_readers = self._num_writers = _ANY_NUMBER

    def submit(self, job: TierJob) -> None:
        (self._loads if job.is_load else self._stores).append(job)
        self._start()

    def _start(self) -> None:
        """Threads without work take the next jobs."""
        while self._num_readers and (self._loads or self._stores):
            if self._num_writers and not self._loads:
                break
            self._num_readers -= 1
            self._begin(self._loads or self._stores, is_reader=True)
        while self._num_writers and (self._loads or self._stores):
            self._num_writers -= 1
            self._begin(self._stores or self._loads, is_reader=False)

    def _begin(self, waiting: deque[TierJob], *, is_reader: bool) -> None:
        job, store = waiting.popleft(), self.store
        self.running.append(job)
        pages = [job.pages]
        if job.is_load:
            job.job = store.read(pages, self._ending(job, pages, is_reader=is_reader))
            return
        if not self._is_whole:
            # Files that are there are not written again, objects are.
            pages = store.missing(pages)
        job.job = store.write(pages, self._ending(job, pages, is_reader=is_reader))

    def _ending(
        self, job: TierJob, pages: Sequence[Pages], *, is_reader: bool
    ) -> Callable[[], None]:
        num_new = num_of(pages)

        def end() -> None:
            self._end(job, num_new, is_reader=is_reader)

        return end

    def _end(self, job: TierJob, num_new: int, *, is_reader: bool) -> None:
        num_all = len(job.keys)
        if job.is_load:
            job.num_done = self.store.take(job.pages)
        elif self.store.keep([job.pages], num_new=num_new):
            job.num_done = num_all
        if self._is_whole and job.num_done < num_all:
            job.num_done = 0
        job.job = None
        self.running.remove(job)
        self.ended.append(job)
        if is_reader:
            self._num_readers += 1
        else:
            self._num_writers += 1
        self._start()


class SecondaryTier:
    """A tier of one server, for its scheduler.

    Attributes:
        settings: what it is.
        now_ns: the time; the role sets it (`sim.vllm.offload.role`).
        jobs: those that are not over, as far as the scheduler knows.
        promoted: for each request, the chunks that this decision begins to read.
        store: where they are; other servers may use it, too.
    """

    def __init__(self, settings: TierSettings, store: Store, blocks_per_chunk: int) -> None:
        self.settings = settings
        self.now_ns = 0
        self.jobs: dict[TierJob, None] = {}
        self.promoted: dict[Access, list[ChunkKey]] = {}
        self._blocks_per_chunk = blocks_per_chunk
        self.store = store
        self._lookups = Lookups(store, self._page_of)
        self._threads = Threads(store, settings)
        self._pressure = None if settings.pressure is None else Pressure(settings.pressure)

    def _page_of(self, key: ChunkKey) -> int:
        """A chunk's name in the store: servers with other chunks have other names."""
        return key.prefix << 32 | key.group << 16 | self._blocks_per_chunk

    def use(self, store: Store) -> None:
        """Use another server's store; see `BaseScheduler.share_stores`."""
        self.store = self._lookups.store = self._threads.store = store

    # ---- decisions -----------------------------------------------------------------------------

    def begin_decision(self, now_ns: int) -> list[TierJob]:
        """The scheduler learns what has happened; returns the jobs that are over."""
        self.now_ns = now_ns
        self.store.advance(now_ns)
        ended, self._threads.ended = self._threads.ended, []
        if self.settings.kind == "obj":
            # Transfers are looked at in the order in which they were begun.
            over = set(ended)
            ended = [job for job in self.jobs if job in over]
        for job in ended:
            del self.jobs[job]
            if job.is_load:
                self._lookups.missing(job.keys[job.num_done :])
            elif self._pressure is not None:
                if job.num_done:
                    self._pressure.stored(job.num_done, job.submitted_ns, now_ns)
                else:
                    self._pressure.failed(now_ns)
        self._lookups.take_answers()
        return ended

    def end_decision(self, now_ns: int) -> bool:
        """What the decision has asked for begins; returns whether chunks are read."""
        self.now_ns = now_ns
        reads = bool(self.promoted)
        for keys in self.promoted.values():
            self._submit(keys, is_load=True)
        self.promoted = {}
        self._lookups.ask()
        return reads

    def look_up(self, key: ChunkKey, access: Access) -> bool | None:
        """Whether a chunk is there; None: there is no answer yet."""
        return self._lookups.look_up(key, access)

    def promote(self, key: ChunkKey, access: Access) -> None:
        """A chunk that is there gets room in CPU memory, and is read at the decision's end."""
        self.promoted.setdefault(access, []).append(key)

    def write(self, keys: Sequence[ChunkKey]) -> bool:
        """Write chunks that are in CPU memory; False: they are dropped, as the tier is too slow."""
        if self._pressure is not None and not self._pressure.lets_store(self.now_ns):
            return False
        self._submit(keys, is_load=False)
        return True

    def forget(self, access: Access) -> None:
        """A request is over, and nothing more is stored for it."""
        self._lookups.forget(access)

    def _submit(self, keys: Sequence[ChunkKey], *, is_load: bool) -> None:
        pages = Pages([self._page_of(key) for key in keys])
        job = TierJob(keys, pages, is_load=is_load, submitted_ns=self.now_ns)
        self.jobs[job] = None

        def begin() -> None:
            job.job = None
            self._threads.submit(job)

        job.job = self.store.later(self.now_ns - self.store.now_ns, begin)

    @property
    def is_within_bounds(self) -> bool:
        """Whether the store has no more than fits, for checks."""
        capacity = self.store.settings.capacity_pages
        return capacity is None or self.store.num_pages <= capacity

    # ---- time ----------------------------------------------------------------------------------

    @property
    def is_asked(self) -> bool:
        """It has got, or gets, something to look up or to read."""
        return bool(self.promoted) or self._lookups.is_busy

    def next_ns(self) -> int | None:
        """The earliest time at which something may be over; None: nothing is under way."""
        store = self.store
        store.advance(store.now_ns)
        if self._threads.ended or self._lookups.answers:
            return store.now_ns
        jobs = [job.job for job in self.jobs]
        ends = [store.end_ns(each) for each in [*jobs, self._lookups.job] if each is not None]
        return min(ends, default=None)

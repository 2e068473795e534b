"""Tiers below CPU memory in virtual time.

vLLM's own `TieringOffloadingManager`, `FileSystemTierManager` or `ObjectStoreSecondaryTierManager`,
their asynchronous lookups and their back-pressure decide. Replaced are the threads that look up,
read and write (of type `obj`: NIXL's agent), the memory region, and the clock of back-pressure. How
long an operation takes, and what is found, is that of servetwin's store (`sim/engine/store.py`).
"""

from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
from vllm.v1.kv_offload.base import get_offload_group_idx
from vllm.v1.kv_offload.tiering import async_lookup, backpressure, manager, spec
from vllm.v1.kv_offload.tiering.fs import manager as fs
from vllm.v1.kv_offload.tiering.obj import manager as obj

from oracle.vllm.offload import tiers_in
from sim.engine.store import Job, Pages, Store, StoreSettings, num_of

Config = dict[str, Any]

_NS_PER_S = 1_000_000_000


def store_settings(store: Config, chunk_tokens: int) -> StoreSettings:
    """As the scenario's section `store` computes them, with the same roundings."""
    given = {name: float(value) for name, value in store.items() if value is not None}
    capacity = given.get("capacity_tokens")
    return StoreSettings(
        capacity_pages=None if capacity is None else int(capacity) // chunk_tokens,
        lookup_ns=given["lookup_s"] * _NS_PER_S,
        read_latency_ns=given["read_latency_s"] * _NS_PER_S,
        write_latency_ns=given["write_latency_s"] * _NS_PER_S,
        read_ns_per_page=chunk_tokens * (_NS_PER_S / given["read_tokens_per_s"]),
        write_ns_per_page=chunk_tokens * (_NS_PER_S / given["write_tokens_per_s"]),
        pages_at_once=int(given["pages_at_once"]),
        failed_read_share=given["failed_read_share"],
        failed_write_share=given["failed_write_share"],
        seed=int(given["seed"]),
    )


class _Region:
    """Memory that nobody touches, of any size."""

    def __init__(self, num_chunks: int, kv_bytes_per_chunk: int, **_: object) -> None:
        shape = num_chunks, kv_bytes_per_chunk
        strides = kv_bytes_per_chunk, 1
        self._array = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), shape, strides)

    def create_kv_memoryview(self) -> memoryview:
        return memoryview(self._array)

    def cleanup(self) -> None:
        pass


class Disk:
    """What the files or objects of a tier lie on: all ranks of a server have it together."""

    def __init__(self, config: Config, tier: Config) -> None:
        chunk_tokens = config["offload"]["blocks_per_chunk"] * config["block_size"]
        settings = store_settings(tier["store"], chunk_tokens)
        self.store = Store(settings, Random(settings.seed).random)
        self._pages: dict[str, int] = {}

    def page(self, path: str) -> int:
        """A file's or an object's name in the store."""
        return self._pages.setdefault(path, len(self._pages))


class Threads:
    """What replaces the threads of one tier of one scheduler.

    Attributes:
        disk: where the tier keeps chunks.
        jobs: what is under way; None: it waits for a thread.
        finished: jobs that are over, of which the scheduler does not know yet.
        lookup: the lookup that is under way.
    """

    def __init__(self, engine: Any, disk: Disk) -> None:
        self.disk = disk
        self.store = disk.store
        self._engine = engine
        # What threads get to do, and when; the store begins it in the order of ranks.
        self._asked: list[tuple[int, Callable[[], None]]] = []
        self._place = len(self.store.starters)
        self.store.starters.append(self._start_asked)
        self.jobs: dict[Any, Job | None] = {}
        self.finished: deque[Any] = deque()
        self.lookup: Job | None = None

    def attach(self, tier: Any) -> None:
        """`tier` is vLLM's."""
        finished = tier.get_finished_jobs

        def finished_now() -> Any:
            self.store.advance(self._engine.now_ns)
            return finished()

        tier.get_finished_jobs = finished_now
        self.lookups = tier._lookup_manager
        self.lookups._lookup_queue = _Questions(self, tier)
        if tier.tier_type == "fs":
            tier._pool.tier = tier

    def later(self, begin: Callable[[], None]) -> None:
        self._asked.append((self._engine.now_ns, begin))
        self.store.ask(self._place)

    def _start_asked(self) -> None:
        for at_ns, begin in self._asked:
            self.store.later(at_ns - self.store.now_ns, begin)
        self._asked.clear()

    def next_ns(self) -> int | None:
        """When something may be over; at once, if the scheduler has not looked yet."""
        store = self.store
        store.advance(self._engine.now_ns)
        if self.finished or not self.lookups._pending_results.empty():
            return store.now_ns
        jobs = [job for job in (*self.jobs.values(), self.lookup) if job is not None]
        return min((store.end_ns(job) for job in jobs), default=None)


class Tiers:
    """The tiers of one scheduler. Made before it; `attach` then gets it.

    Attributes:
        disks: that of each tier.
    """

    def __init__(self, config: Config, engine: Any, disks: list[Disk] | None) -> None:
        """`engine` has the time, and decides again at once if `made_progress` is set.

        `disks`: those of the ranks before; None: there are none.
        """
        given = tiers_in(config)
        self.disks = disks or [Disk(config, tier) for tier in given]
        self._engine = engine
        self._threads = [Threads(engine, disk) for disk in self.disks]
        clock = SimpleNamespace(monotonic=lambda: engine.now_ns / _NS_PER_S)
        backpressure.time = manager.time = clock
        bytes_per_chunk = max(tier.get("chunk_bytes", 0) for tier in given)
        spec.SharedOffloadRegion = lambda **given: _Region(
            given["num_chunks"], bytes_per_chunk or given["kv_bytes_per_chunk"]
        )
        spec.SharedOffloadRegion.BLOCK_SIZE_ALIGNMENT = 4096
        none = SimpleNamespace(start=lambda: None, join=lambda: None)
        async_lookup.threading = SimpleNamespace(Thread=lambda **_: none)
        # VLLM makes its tiers in their order.
        of_kind = {
            kind: iter([each for each, tier in self._of_tiers(given) if tier["type"] == kind])
            for kind in ("fs", "obj")
        }
        fs.DualQueueThreadPool = lambda readers, writers, **_: _Pool(
            next(of_kind["fs"]), readers, writers
        )
        obj.nixl_agent_config = lambda **_: None
        obj.nixl_agent = lambda *_: _Agent(next(of_kind["obj"]))

    def _of_tiers(self, tiers: list[Any]) -> Iterable[tuple[Threads, Any]]:
        return zip(self._threads, tiers, strict=True)

    def attach(self, scheduler: Any) -> None:
        connector = scheduler.connector
        # Behind the one that sends KV, if there are two.
        *_, connector = getattr(connector, "sub_connectors", [connector])
        self.manager = connector.connector_scheduler.manager
        for threads, tier in self._of_tiers(self.manager.secondary_tiers):
            threads.attach(tier)
        register = self.manager._register_job

        def register_now(job: Any, tier_idx: int) -> None:
            job.submit_time = self._engine.now_ns / _NS_PER_S
            register(job, tier_idx)

        self.manager._register_job = register_now
        flush = self.manager._flush_pending_promotions

        def flush_and_note() -> None:
            """An idle engine, which decides all the time, may find that others have left."""
            self._engine.made_progress |= bool(self.manager._pending_load_submissions)
            flush()

        self.manager._flush_pending_promotions = flush_and_note
        complete = self.manager.complete_store

        def complete_in_order(keys: set[Any], context: Any, success: bool = True) -> None:
            """VLLM has a set of keys; here they are in the order of groups, then of the prefix."""
            place = context.get_offload_key_position
            in_order = sorted(keys, key=lambda key: (get_offload_group_idx(key), place(key)))
            complete(in_order, context, success)

        self.manager.complete_store = complete_in_order

    @property
    def num_chunks(self) -> int:
        """Chunks in CPU memory."""
        primary = self.manager.primary_tier
        return primary._num_allocated_chunks - len(primary._free_list)

    def next_ns(self) -> int | None:
        """When something may be over in some tier."""
        times_ns = [threads.next_ns() for threads in self._threads]
        return min([each for each in times_ns if each is not None], default=None)


class _Questions:
    """Stands in for the thread that looks up: a lookup for each request of a batch."""

    def __init__(self, threads: Threads, tier: Any) -> None:
        self._threads, self._tier = threads, tier
        self._batches: deque[Any] = deque()

    def put(self, batch: list[Any]) -> None:
        by_request: dict[str, list[Any]] = {}
        for key, context, generation in batch:
            by_request.setdefault(context.req_id, []).append((key, generation))
        self._batches.append((deque(by_request.values()), []))
        self._threads.later(self._begin)

    def _begin(self) -> None:
        if self._threads.lookup is None and self._batches:
            self._threads.lookup = self._threads.store.look_up(self._end)

    def _end(self) -> None:
        groups, results = self._batches[0]
        store, mapper = self._threads.store, _mapper(self._tier)
        for key, generation in groups.popleft():
            page = self._threads.disk.page(mapper.get_file_name(key))
            results.append((key, generation, store.has(page)))
        self._threads.lookup = None
        if not groups:
            self._batches.popleft()
            self._threads.lookups._pending_results.put(results)
        self._begin()


def _mapper(tier: Any) -> Any:
    return tier.file_mapper if tier.tier_type == "fs" else tier._file_mapper


class _Pool:
    """Stands in for the threads of type `fs`."""

    def __init__(self, threads: Threads, num_readers: int, num_writers: int) -> None:
        self.tier: Any = None
        self._threads = threads
        # Of each kind of threads, how many are idle, and the queues in their order.
        loads: deque[Any] = deque()
        stores: deque[Any] = deque()
        self._idle = {"load": num_readers, "store": num_writers}
        self._queues = {"load": (loads, stores), "store": (stores, loads)}

    def enqueue_load(self, job_id: int, _num: int, _tasks: Iterable[Any]) -> None:
        keys = self.tier._load_job_keys[job_id]
        self._enqueue("load", job_id, [self.tier.file_mapper.get_file_name(key) for key in keys])

    def enqueue_store(self, job_id: int, _num: int, tasks: Iterable[Any]) -> None:
        (task,) = tasks
        self._enqueue("store", job_id, task.args[0])

    def _enqueue(self, kind: str, job_id: int, paths: list[str]) -> None:
        pages = [self._threads.disk.page(path) for path in paths]

        def begin() -> None:
            self._queues[kind][0].append((kind, job_id, pages))
            self._start()

        self._threads.jobs[job_id] = None
        self._threads.later(begin)

    def _start(self) -> None:
        # A thread that takes such jobs first, if one is idle; else one of the others.
        for first in (True, False):
            for thread in ("load", "store"):
                queue = self._queues[thread][0 if first else 1]
                while self._idle[thread] and queue:
                    self._idle[thread] -= 1
                    self._begin(thread, *queue.popleft())

    def _begin(self, thread: str, kind: str, job_id: int, pages: list[int]) -> None:
        store = self._threads.store
        all_pages = Pages(pages)
        moved = [all_pages] if kind == "load" else store.missing([all_pages])

        def end() -> None:
            if kind == "load":
                num_read = store.take(all_pages)
                is_done = num_read == len(pages)
                if not is_done:
                    self.tier._load_progress[job_id] = num_read
            else:
                is_done = store.keep([all_pages], num_new=num_of(moved))
            del self._threads.jobs[job_id]
            self._threads.finished.append((job_id, is_done, 0.0))
            self._idle[thread] += 1
            self._next(thread)

        operation = store.read if kind == "load" else store.write
        self._threads.jobs[job_id] = operation(moved, end)

    def _next(self, thread: str) -> None:
        """A thread that is free takes what it takes first, then what it takes second."""
        for queue in self._queues[thread]:
            if queue and self._idle[thread]:
                self._idle[thread] -= 1
                self._begin(thread, *queue.popleft())
                return

    def get_finished(self) -> list[Any]:
        finished = list(self._threads.finished)
        self._threads.finished.clear()
        return finished


class _Agent:
    """Stands in for NIXL's agent of type `obj`."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._states: dict[int, str] = {}
        self._num = 0

    def create_backend(self, *_: object) -> None:
        pass

    def query_memory(self, descriptors: list[Any], *_: object) -> list[Any]:
        pages = [self._threads.disk.page(each[3]) for each in descriptors]
        return [{} if self._threads.store.has(page) else None for page in pages]

    def register_memory(self, files: list[Any], _kind: str) -> Any:
        return SimpleNamespace(trim=lambda: [self._threads.disk.page(each[3]) for each in files])

    def prep_xfer_dlist(self, _name: str, blocks: list[Any], *_: object) -> Any:
        return blocks

    def make_prepped_xfer(self, op: str, _near: Any, _ids: Any, pages: Any, _order: Any) -> Any:
        self._num += 1
        return self._num, op, pages

    def transfer(self, handle: Any) -> str:
        number, op, pages = handle
        threads, store, moved = self._threads, self._threads.store, Pages(pages)
        self._states[number] = "PROC"

        def begin() -> None:
            threads.jobs[number] = (store.read if op == "READ" else store.write)([moved], end)

        def end() -> None:
            if op == "READ":
                is_done = store.take(moved) == len(pages)
            else:
                is_done = store.keep([moved], num_new=len(pages))
            self._states[number] = "DONE" if is_done else "ERR"
            del threads.jobs[number]
            threads.finished.append(number)

        threads.jobs[number] = None
        threads.later(begin)
        return "PROC"

    def check_xfer_state(self, handle: Any) -> str:
        state = self._states[handle[0]]
        if state != "PROC":
            self._threads.finished.remove(handle[0])
        return state

    def get_xfer_telemetry(self, _handle: Any) -> Any:
        return SimpleNamespace(xferDuration=0)

    def release_xfer_handle(self, _handle: Any) -> None:
        pass

    release_dlist_handle = deregister_memory = release_xfer_handle

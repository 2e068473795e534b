"""SGLang's storage tier in virtual time: its own threads, one at a time, and a store for them.

SGLang's thread functions (`prefetch_thread_func`, `prefetch_io_aux_func`, `backup_thread_func` and
`prefetch_sync_thread_func` in managers/cache_controller.py) run as they are, each in a thread. Such
a thread goes on when the driver lets it: until it waits for its queue, or for the store. What the
scheduler puts into their queues they see when the driver next sets the time.
"""

import math
import random
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

from sglang.srt.managers import cache_controller
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, PoolTransferResult
from sglang.srt.mem_cache.hybrid_cache import hybrid_cache_controller
from sglang.srt.mem_cache.storage import StorageBackendFactory
from sglang.srt.runtime_context import get_parallel

from sim.installed.inside.sglang.memory import NUM_LAYERS
from sim.installed.inside.sglang.quiet import Quiet
from sim.installed.inside.sglang.settings import Config


class VirtualThreads:
    """Threads that run one at a time, in the order of virtual time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.all: list[VirtualThread] = []
        self.running: VirtualThread | None = None
        self.error: BaseException | None = None
        self.returned = threading.Semaphore(0)
        self._num_sleeps = 0

    def run_until(self, time_s: float) -> None:
        while self.all:
            # Of what ends at the same time, what has begun first.
            thread = min(self.all, key=lambda each: (each.next_s(), each.number))
            next_s = thread.next_s()
            if next_s > time_s:
                break
            self.now_s = max(self.now_s, next_s)
            self.running = thread
            thread.may_go_on.release()
            self.returned.acquire()
            self.running = None
            if self.error is not None:
                raise self.error
        self.now_s = max(self.now_s, time_s)

    def sleep(self, duration_s: float) -> None:
        """Let time pass in the thread that runs."""
        if self.running is not None:
            self.running.wakes_s = round(self.now_s + duration_s, 9)
            self._num_sleeps += 1
            self.running.number = self._num_sleeps
            self.running.pause()
            self.running.number = 0


class VirtualThread:
    """One of SGLang's threads."""

    def __init__(self, owner: VirtualThreads, target: Callable[[], None]) -> None:
        self._owner = owner
        self._target = target
        self.wakes_s = owner.now_s
        self.number = 0  # of its sleep, over those of all threads
        self.awaited: VirtualQueue | None = None
        self.may_go_on = threading.Semaphore(0)

    def start(self) -> None:
        self._owner.all.append(self)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        self.may_go_on.acquire()
        try:
            self._target()
        except BaseException as error:
            self._owner.error = error
            self._owner.returned.release()

    def pause(self) -> None:
        self._owner.returned.release()
        self.may_go_on.acquire()

    def next_s(self) -> float:
        """When it goes on; infinity: not before something is put into its queue."""
        if self.awaited is None:
            return self.wakes_s
        waiting = self.awaited.queue
        return max(self.wakes_s, waiting[0][0]) if waiting else math.inf


class VirtualQueue:
    """Stands in for `queue.Queue`."""

    owner: VirtualThreads

    def __init__(self) -> None:
        self.queue: deque[tuple[float, Any]] = deque()

    def __class_getitem__(cls, _: Any) -> type["VirtualQueue"]:
        return cls

    def put(self, item: Any) -> None:
        self.queue.append((self.owner.now_s, item))

    def get(self, *, block: bool = True, timeout: float | None = None) -> Any:
        thread = self.owner.running
        while not self.queue and thread is not None:
            thread.wakes_s, thread.awaited = self.owner.now_s, self
            thread.pause()
            thread.awaited = None
        return self.queue.popleft()[1]

    def qsize(self) -> int:
        return len(self.queue)

    def empty(self) -> bool:
        return not self.queue


# The size of a page with the KV of all layers.
_WHOLE = 1 << 20


def _sizes(config: Config) -> dict[str, int]:
    """The sizes of pages by their pools.

    Half of the layers with KV have a window, or with states, a third; see `memory.NUM_LAYERS`.
    """
    page, states = config["page_size"], config["max_mamba_cache_size"]
    windows = (1 / 3 if states else 1 / 2) if config["sliding_window"] else 0.0
    state_tokens = config["state_copy_tokens"] / (1 - 1 / NUM_LAYERS) if states else 0.0
    shares = {"kv": 1 - windows, "swa": windows, "mamba": state_tokens / page}
    return {pool: round(share * _WHOLE) for pool, share in shares.items()}


class Store(HiCacheStorage):
    """Pages by their keys; the least recently read or written ones go first.

    The pages of a batch are read or written `pages_at_once` at a time, and share the bandwidth.
    Pages of windows, and states, have keys of their own, which end with the pool's name.
    """

    def __init__(self, threads: VirtualThreads, config: Config) -> None:
        self._threads, self._settings = threads, config["store"]
        self._page_size = config["page_size"]
        self._size_of = _sizes(config)
        self._pages: OrderedDict[str, int] = OrderedDict()
        self._used = 0
        self._rng = random.Random(self._settings["seed"])

    def _wait(self, kind: str, num_pages: int, size: int) -> None:
        settings = self._settings
        num_rounds = -(-num_pages // settings["pages_at_once"])
        num_tokens = size / _WHOLE * self._page_size
        self._threads.sleep(
            num_rounds * settings[f"{kind}_latency_s"]
            + num_tokens * settings[f"{kind}_s_per_token"]
        )

    def _fails(self, kind: str) -> bool:
        share = self._settings[f"failed_{kind}_share"]
        return bool(share) and self._rng.random() < share

    def batch_exists(self, keys: list[str], extra_info: Any = None) -> int:
        self._threads.sleep(self._settings["lookup_s"])
        return next((i for i, key in enumerate(keys) if key not in self._pages), len(keys))

    def batch_exists_v2(
        self, keys: list[str], pool_transfers: Any = None, extra_info: Any = None
    ) -> PoolTransferResult:
        """As `HiCacheFile` of the same module."""
        num_pages = self.batch_exists(keys)
        ends = list(range(1, num_pages + 1))
        for transfer in pool_transfers or []:
            has = [f"{key}.{transfer.name}" in self._pages for key in keys]
            number = max(1, len(transfer.keys or ()))
            ends = [end for end in ends if all(has[max(0, end - number) : end])]
        return PoolTransferResult(ends[-1] if ends else 0, {}, ends)

    def _take(self, key: str) -> bool:
        if key not in self._pages or self._fails("read"):
            return False
        self._pages.move_to_end(key)
        return True

    def batch_get(self, keys: list[str], target_locations: Any, target_sizes: Any = None) -> Any:
        self._wait("read", len(keys), len(keys) * self._size_of["kv"])
        pages: list[Any] = []
        for key, page in zip(keys, target_locations, strict=True):
            if not self._take(key):
                break
            pages.append(page)
        return pages + [None] * (len(keys) - len(pages))

    def batch_get_v2(self, transfers: Any, extra_info: Any = None) -> dict[str, list[bool]]:
        size = sum(len(each.keys) * self._size_of[str(each.name)] for each in transfers)
        self._wait("read", sum(len(each.keys) for each in transfers), size)
        results: dict[str, list[bool]] = {}
        for transfer in transfers:
            if len(transfer.host_indices) != len(transfer.keys) * (
                1 if str(transfer.name) == "mamba" else self._page_size
            ):
                raise ValueError("the pages do not fit their places")
            came = results[transfer.name] = [False] * len(transfer.keys)
            for i, key in enumerate(transfer.keys):
                if not self._take(f"{key}.{transfer.name}"):
                    break
                came[i] = True
        return results

    def _put(self, pages: list[tuple[str, int]]) -> bool:
        missing = [size for key, size in pages if key not in self._pages]
        self._wait("write", len(missing), sum(missing))
        if missing and self._fails("write"):
            return False
        most = (self._settings["capacity_pages"] or math.inf) * _WHOLE
        for key, size in pages:
            self._used += size - self._pages.pop(key, 0)
            self._pages[key] = size
            while self._used > most:
                self._used -= self._pages.popitem(last=False)[1]
        return True

    def batch_set(self, keys: list[str], values: Any = None, *_: Any) -> bool:
        return self._put([(key, self._size_of["kv"]) for key in keys])

    def batch_set_v2(self, transfers: Any, extra_info: Any = None) -> dict[str, list[bool]]:
        pages = [
            (f"{key}.{each.name}", self._size_of[str(each.name)])
            for each in transfers
            for key in each.keys
        ]
        is_kept = self._put(pages)
        return {each.name: [is_kept] * len(each.keys) for each in transfers}

    def get(self, *_: Any) -> None:
        raise NotImplementedError

    exists = set = get


def _fail(message: str, *_: Any) -> None:
    raise RuntimeError(message)


@cache
def _threads() -> VirtualThreads:
    """The threads of all ranks of the server that this process runs."""
    return VirtualThreads()


class Storage:
    """The storage tier of one server, or of one rank, for the driver."""

    store: Store | None = None  # that of all ranks

    def __init__(self, config: Config) -> None:
        """Stand in for threads, their queues and the store in SGLang's modules."""
        get_parallel().override_permanently(attn_dcp_rank=0)
        self.threads = threads = _threads()
        self._is_decode = config["disaggregation_mode"] == "decode"
        VirtualQueue.owner = threads
        for module in (cache_controller, hybrid_cache_controller):
            module.Queue = VirtualQueue
        cache_controller.threading = SimpleNamespace(
            Event=threading.Event,
            Lock=threading.Lock,
            Thread=lambda target, **_: VirtualThread(threads, target),
        )
        # What SGLang's threads catch and log must not go unseen.
        cache_controller.logger = Quiet(exception=_fail)
        if Storage.store is None:
            Storage.store = Store(threads, config)
        StorageBackendFactory.create_backend = lambda *_, **__: Storage.store

    def attach(self, server: Any) -> None:
        self._server, self._tree = server, server.tree_cache
        self._tree.cache_controller.storage_host_pool.pin_memory = False  # for want of a GPU
        self._has_skipped = False
        lost = server._prefetch_after_device_hit_loss

        def watched(request: Any) -> bool:
            is_skipped = bool(lost(request))
            self._has_skipped |= is_skipped
            return is_skipped

        server._prefetch_after_device_hit_loss = watched

    def set_time(self, now_s: float) -> None:
        self.threads.run_until(now_s)

    def begin_decision(self) -> None:
        self._has_skipped = False
        self.threads.run_until(self.threads.now_s)

    def events(self) -> list[float]:
        """When an idle server finds something changed; 0: at once."""
        now_s, tree, controller = self.threads.now_s, self._tree, self._tree.cache_controller
        self.threads.run_until(now_s)
        queues = (
            controller.prefetch_hit_queue, controller.ack_prefetch_queue,
            controller.ack_backup_queue, controller.host_mem_release_queue,
            *controller.extra_host_mem_release_queues.values(),
        )  # fmt: skip
        pending = tree.storage_prefetch_retries._pending
        # A decode server never looks a request up again.
        waiting = [] if self._is_decode else self._server.waiting_queue
        if (
            self._has_skipped
            or any(queue.qsize() for queue in queues)
            or any(request.rid in pending for request in waiting)
        ):
            return [0.0]
        times = [thread.next_s() for thread in self.threads.all]
        for handle, wait in tree._storage_prefetch_wait.items():
            if handle in tree.ongoing_prefetch and wait.timer.running and not wait.expired:
                left_s = wait.timeout_s - wait.timer.elapsed()
                if left_s > 0:
                    times.append(math.ceil((now_s + left_s) * 1e9) / 1e9)
        return [time_s for time_s in times if time_s < math.inf]

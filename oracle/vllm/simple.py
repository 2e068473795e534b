"""KV in CPU memory with vLLM's `SimpleCPUOffloadConnector`, whose copies take virtual time.

The connector, its manager and `SimpleCPUOffloadWorker`, which says what has ended, are vLLM's own.
Replaced is what the worker gives copies to: each direction makes one copy at a time, each as long
as its blocks take. A load begins when it is given, a store when the steps launched before have
ended.
"""

from types import SimpleNamespace
from typing import Any

from vllm.v1.outputs import KVConnectorOutput

Config = dict[str, Any]

NAME = "SimpleCPUOffloadConnector"
_ANY_SIZE = 1 << 40


def is_simple(config: Config) -> bool:
    return config.get("offload", {}).get("kv_connector") == NAME


def simple_config(config: Config) -> Config:
    """Settings of vLLM's connector; of its blocks, it never uses the first."""
    offload = config["offload"]
    return {
        "kv_connector": NAME,
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "cpu_bytes_to_use": _ANY_SIZE,
            "num_cpu_blocks": offload["num_chunks"] + 1,
            "lazy_offload": offload["lazy_offload"],
        },
    }


def note_scans(config: Config, engine: Any) -> None:
    """With `lazy_offload`: the engine decides again at once if a decision goes over free blocks."""
    if not is_simple(config):
        return
    manager = engine.scheduler.connector.scheduler_manager
    if manager is None:
        return
    build = manager._prepare_lazy_store_specs

    def look() -> Any:
        pool, before = manager._gpu_block_pool, manager._cursor
        if before is not None and before.ref_cnt > 0:
            before = None
        is_last = next(iter(pool.free_block_queue.iter_blocks_after(before)), None) is None
        has_room = manager.cpu_block_pool.get_num_free_blocks() > 0
        if has_room and not is_last:
            engine.made_progress = True
        return build()

    manager._prepare_lazy_store_specs = look


def num_host_blocks(scheduler: Any) -> int:
    """Blocks in CPU memory that can be found, or are being written."""
    manager = scheduler.connector.scheduler_manager
    if manager is None:
        return 0
    stores = [*manager._store_event_to_blocks.values(), *manager._pending_finished_stores]
    num_findable = sum(block.block_hash is not None for block in manager.cpu_block_pool.blocks)
    return num_findable + sum(len(each.cpu_block_ids) for each in stores)


class _Copy:
    """A copy, as the worker sees it: an event of the GPU."""

    def __init__(self, workers: "SimpleWorkers", end_ns: int) -> None:
        self._workers = workers
        self.end_ns = end_ns

    def query(self) -> bool:
        return self.end_ns <= self._workers.now_ns

    def synchronize(self) -> None:
        self._workers.now_ns = max(self._workers.now_ns, self.end_ns)


class SimpleWorkers:
    """Stands in for what the worker of one server gives copies to."""

    def __init__(self, config: Config) -> None:
        from vllm.v1.simple_kv_offload import worker

        worker.torch = SimpleNamespace(cuda=SimpleNamespace(current_stream=lambda: None))
        self.role: str | None = None
        self.now_ns = self._after_ns = 0
        self._ns_per_block = float(config["offload"]["copy_ns_per_block"])
        self._free_ns = {True: 0, False: 0}
        self._worker = worker.SimpleCPUOffloadWorker(None, None, 0)
        self._worker._backend = self
        self._worker._store_compute_done = SimpleNamespace(record=lambda _stream: None)

    def launch_copy(
        self,
        src_blocks: list[int],
        _dst_blocks: list[int],
        *,
        is_store: bool,
        event_idx: int,
        events_list: list[Any],
        **_: Any,
    ) -> None:
        """As the worker's backend."""
        begin_ns = max(self._after_ns if is_store else self.now_ns, self._free_ns[is_store])
        end_ns = begin_ns + round(len(src_blocks) * self._ns_per_block)
        self._free_ns[is_store] = end_ns
        events_list.append((event_idx, _Copy(self, end_ns)))

    @property
    def next_ns(self) -> int | None:
        """When the next copy ends."""
        events = self._worker._load_events, self._worker._store_events
        return min([each[0][1].end_ns for each in events if each], default=None)

    def begin(self, decided: Any, _scripts: object, now_ns: int, _device_free_ns: int) -> int:
        """Returns when the worker launches the step: after a preemption, behind all copies."""
        self.now_ns = now_ns
        self._worker.handle_preemptions(decided.kv_connector_metadata)
        return self.now_ns

    def launched(self, decided: Any, now_ns: int, device_free_ns: int) -> bool:
        """The step is launched, with the copies that were decided with it."""
        self.now_ns, self._after_ns = now_ns, max(now_ns, device_free_ns)
        metadata = decided.kv_connector_metadata
        if not hasattr(metadata, "store_event"):
            return False
        self._worker.bind_connector_metadata(metadata)
        self._worker.start_load_kv()
        self._worker.wait_for_save()
        return bool(metadata.load_event >= 0 or metadata.store_event >= 0)

    def ended(self, script: Any, now_ns: int) -> None:
        """A request has ended."""

    def report(self, now_ns: int) -> KVConnectorOutput | None:
        """What has ended until now; reported once, in the order of events. vLLM reports sets."""
        self.now_ns = now_ns
        metadata = self._worker._connector_metadata
        _, loaded = self._worker.get_finished(set())
        stored = self._worker.build_connector_worker_meta()
        if not (loaded or stored):
            return None
        if stored is not None:
            events = sorted(stored.completed_store_events.items())
            stored.completed_store_events = dict(events)
        rids = [rid for each in metadata.load_event_to_reqs.values() for rid in each]
        return KVConnectorOutput(
            finished_recving=[rid for rid in rids if rid in (loaded or ())],
            kv_connector_worker_meta=stored,
        )

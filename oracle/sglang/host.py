"""Gives the harness's server SGLang's host memory below the tree; needs SGLang's environment.

The tree, the controller of copies, and the pools of both memories (small tensors on the CPU) are
SGLang's own. `virtual_device` stands in for streams, events and the copies themselves.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any
from unittest.mock import patch

from oracle.sglang.live import add_server_args
from oracle.sglang.virtual_device import VirtualDevice

# Layers of the model whose KV is copied; a load and its step overlap by layer.
_LAYERS = 4


def use_host(harness: ModuleType, config: dict[str, Any]) -> None:
    """Make `build_scheduler` of the harness build a server with host memory.

    Keys of the configuration: `hicache_ratio`, `hicache_write_policy`, and `copy_s_per_token`, the
    seconds that the copy of a token takes in either direction.
    """
    settings = {
        "enable_hierarchical_cache": True,
        "hicache_ratio": config["hicache_ratio"],
        "hicache_size": 0,
        "hicache_write_policy": config["hicache_write_policy"],
        "hicache_io_backend": "direct",
        "hicache_mem_layout": "layer_first",
    }
    add_server_args(settings)
    keep_host_memory(harness, config)
    build = harness.build_scheduler

    def build_with_tree(given: dict[str, Any]) -> Any:
        scheduler = build(given)
        scheduler.enable_hierarchical_cache = True
        return scheduler

    harness.build_scheduler = build_with_tree


def keep_host_memory(
    harness: ModuleType, config: dict[str, Any], prepare: Callable[[Any], None] = lambda _: None
) -> None:
    """Make `build_scheduler` of the harness build a server whose tree has host memory below it.

    `prepare` gets the tree's settings before its host memory is allocated.
    """
    from sglang.srt.mem_cache import unified_radix_cache
    from sglang.srt.mem_cache.allocator import paged, token

    real_cache, build = unified_radix_cache.UnifiedRadixCache, harness.build_scheduler

    def cache(params: Any) -> Any:
        prepare(params)
        tree = real_cache(params)
        tree.init_hicache(None, params)
        return tree

    def build_with_host(given: dict[str, Any]) -> Any:
        device = _device(config)
        one_by_one, in_pages = token.TokenToKVPoolAllocator, paged.PagedTokenToKVPoolAllocator

        def flat(size: int, dtype: Any, where: str, _: Any, **more: Any) -> Any:
            return one_by_one(size, dtype, where, _device_pool(config), **more)

        def pages(size: int, page: int, dtype: Any, where: str, _: Any, **more: Any) -> Any:
            return in_pages(size, page, dtype, where, _device_pool(config), **more)

        with (
            patch.object(token, "TokenToKVPoolAllocator", flat),
            patch.object(paged, "PagedTokenToKVPoolAllocator", pages),
            patch.object(unified_radix_cache, "UnifiedRadixCache", cache),
        ):
            scheduler = build(given)
        controller = scheduler.tree_cache.cache_controller
        controller.load_fence_stream = controller.write_fence_stream = device.forward
        scheduler.virtual_device = device
        return scheduler

    harness.build_scheduler = build_with_host


def _device_pool(config: dict[str, Any]) -> Any:
    import torch
    from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool

    page = config["page_size"]
    size = config["kv_pool_tokens"] // page * page
    return MHATokenToKVPool(size, page, torch.float16, 1, 1, _LAYERS, "cpu", False)


def _device(config: dict[str, Any]) -> VirtualDevice:
    from sglang.srt.managers import cache_controller
    from sglang.srt.mem_cache import l2_transfer
    from sglang.srt.mem_cache.pool_host import common, mha

    device = VirtualDevice(config.get("copy_s_per_token", 0.0))
    l2_transfer.device_module = cache_controller.device_module = device
    l2_transfer._timing_events_supported = lambda: False
    common._cuda_host_register = lambda *_, **__: None
    pool = mha.MHATokenToKVPoolHost

    def back_up(_self: Any, _pool: Any, host: Any, *_: Any, **__: Any) -> None:
        device.copy(len(host))

    def load(_self: Any, _pool: Any, host: Any, *_: Any, **__: Any) -> None:
        device.copy(len(host) / _LAYERS)

    pool.backup_from_device_all_layer, pool.load_to_device_per_layer = back_up, load
    return device


def host_oracle(base: type) -> type:
    """A driver whose steps load KV, and that looks for the ends of copies as a server does."""
    return type("HostOracle", (HostDriver, base), {})


class HostDriver:
    """Goes before `LiveDriver` among the bases of a class."""

    def __init__(self, config: dict[str, Any], workload: list[dict[str, Any]]) -> None:
        super().__init__(config, workload)
        self.device = self.s.virtual_device
        self.loaded: list[list[Any]] = []
        init_load_back = self.s.tree_cache.init_load_back

        def load_back(params: Any) -> Any:
            result = init_load_back(params)
            if result[0]:
                self.loaded.append([params.req.rid, result[0]])
            return result

        self.s.tree_cache.init_load_back = load_back

    def ingest(self, now: float) -> None:
        self.device.now_s = now
        super().ingest(now)

    def begin_schedule(self) -> Any:
        self.loaded = []
        return super().begin_schedule()

    def absorb(self, batch: Any, result: Any, t_end: float) -> None:
        self.device.now_s = max(self.device.now_s, t_end)
        super().absorb(batch, result, t_end)

    def describe(self, batch: Any, t0: float, queue_before: int) -> Any:
        """A part of a step waits for its part of the loads: of all layers, for its own."""
        row, end = super().describe(batch, max(t0, self.device.now_s), queue_before)
        start = row["t_start"]
        load_s = sum(n for _, n in self.loaded) * self.cfg["copy_s_per_token"]
        if load_s:
            step_s = end - start
            end = start + max(step_s + load_s / _LAYERS, load_s + step_s / _LAYERS)
        # Whole nanoseconds, so that a request which arrives just then arrives in time.
        end = row["t_end"] = round(end, 9)
        host = self.s.tree_cache.cache_controller.mem_pool_host
        row["loaded"] = self.loaded
        row["host_used"] = host.size - int(host.available_size())
        self.device.forward.free_s = end
        return row, end

    # ---- the server's loops: a server without work looks for the ends of copies all the time ----

    def next_event_s(self) -> float | None:
        """The next arrival or end of a copy; None: there is none."""
        controller = self.s.tree_cache.cache_controller
        times = [self.pending[0][1]["arrival"]] if self.pending else []
        if controller.write_queue:
            times.append(0.0)
        for queue in (controller.ack_write_queue, controller.ack_load_queue):
            times += [ack.finish_event.time_s for ack in queue]
        return min(times, default=None)

    def run_normal(self) -> None:
        now = 0.0
        while self.step < self.cfg["max_steps"]:
            self.ingest(now)
            batch, queue_before = self.begin_schedule()
            if batch:
                result = self.launch(batch)
                row, now = self.describe(batch, now, queue_before)
                self.rows.append(row)
                self.step += 1
                self.absorb(batch, result, now)
            else:
                self.idle()
                if not self.s._prefill_decode_interval_remaining:
                    event_s = self.next_event_s()
                    if event_s is not None:
                        now = max(now, event_s)
                    elif not self.live or self.s.last_batch is None:
                        break
            self.s.last_batch = batch

    def run_overlap(self) -> None:
        scheduler, now, free_s, num_idle = self.s, 0.0, 0.0, 0
        scheduler.enable_skip_finishing_decode = True
        flying: list[float] = []
        while self.step < self.cfg["max_steps"]:
            self.ingest(now)
            batch, queue_before = self.begin_schedule()
            if batch:
                result = self.launch(batch)
                decided_s = now
                now = max(now, self.device.now_s)
                row, free_s = self.describe(batch, max(now, free_s), queue_before)
                row["t_sched"] = round(decided_s, 9)
                self.rows.append(row)
                self.step += 1
                scheduler.result_queue.append((batch.copy(), result))
                flying.append(free_s)
                num_idle = 0
            if scheduler.last_batch:
                now = max(now, flying.pop(0))
                self.absorb(*scheduler.result_queue.popleft(), now)
            elif batch is None:
                self.idle()
                event_s = self.next_event_s()
                if scheduler._prefill_decode_interval_remaining:
                    num_idle = 0
                elif event_s is not None:
                    now = max(now, event_s)
                elif not self.live or num_idle > 2:
                    break
                num_idle += 1
            scheduler.last_batch = batch

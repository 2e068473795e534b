"""Host memory below the tree: what steps load, and how long they wait for it."""

from typing import Any

from oracle.sglang.storage import Storage
from sim.installed.inside.sglang.memory import NUM_LAYERS


class HostMemory:
    """Watches the tree's loads, and the virtual device that copies.

    A decode server's steps do not wait for loads: a request joins them when its load has ended.
    """

    def __init__(self, server: Any, storage: Storage | None, *, is_decode: bool) -> None:
        """`storage`: the tier below; None: there is none."""
        self._is_decode = is_decode
        self._storage = storage
        if storage:
            storage.attach(server)
        self.server, self.device = server, server.virtual_device
        self.controller = server.tree_cache.cache_controller
        self.loaded: list[list[Any]] = []
        self._load_s = 0.0
        load_back = server.tree_cache.init_load_back
        start_loading = self.controller.start_loading

        def watched(params: Any) -> Any:
            result = load_back(params)
            if result[0]:
                self.loaded.append([params.req.rid, result[0]])
            return result

        def timed() -> Any:
            before_s = self.device.copied_s
            started = start_loading()
            self._load_s += self.device.copied_s - before_s
            return started

        server.tree_cache.init_load_back = watched
        self.controller.start_loading = timed

    def set_time(self, now_s: float) -> None:
        self.device.now_s = max(self.device.now_s, now_s)
        if self._storage:
            self._storage.set_time(now_s)

    def begin_decision(self) -> None:
        if self._storage:
            self._storage.begin_decision()
        if not self._is_decode:
            self.loaded, self._load_s = [], 0.0

    def step_end(self, start_s: float, end_s: float) -> float:
        """A layer's part of a step waits for its part of the loads, and for the layer before."""
        if self._load_s and not self._is_decode:
            step_s, load_s = end_s - start_s, self._load_s
            end_s = start_s + max(step_s + load_s / NUM_LAYERS, load_s + step_s / NUM_LAYERS)
        self.device.forward.free_s = round(end_s, 9)
        return end_s

    def fields(self) -> dict[str, Any]:
        """What is loaded for the step, on a decode server since the step before; what is full."""
        loaded, self.loaded = self.loaded, []
        pool = self.controller.mem_pool_host
        return {"loaded": loaded, "host_used": pool.size - int(pool.available_size())}

    def events(self) -> list[float]:
        """When copies end; 0: one can be started now."""
        times = [0.0] if self.controller.write_queue else []
        for queue in (self.controller.ack_write_queue, self.controller.ack_load_queue):
            times += [ack.finish_event.time_s for ack in queue]
        return times + self._storage.events() if self._storage else times

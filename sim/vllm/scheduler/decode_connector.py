"""The role of a server that decodes what prefill servers have begun.

vLLM 0.33.0: `finish_requests`, `_handle_failed_recving`, `_update_from_kv_xfer_finished`
(v1/core/sched/scheduler.py).
"""

from sim.engine.partner import Partner
from sim.vllm.cache.kv_cache_coordinator import KVCacheCoordinator
from sim.vllm.cache.request_blocks import RequestBlocks
from sim.vllm.config import VllmConfig
from sim.vllm.request import VllmLaunch, VllmRequest
from sim.vllm.scheduler.block_fences import BlockFences
from sim.vllm.scheduler.connector import Connector
from sim.vllm.scheduler.loads import Loads


class DecodeConnector(Connector):
    """Fetches the KV of prompts, and protects blocks from steps in flight."""

    def __init__(self, config: VllmConfig, memory: KVCacheCoordinator) -> None:
        super().__init__()
        self.fetched = self.loads = Loads(config, memory)
        self.frees_skipped_first = True
        overlaps = config.async_scheduling or config.micro_batches > 1
        if overlaps and config.rules.fences_blocks:
            self.fences = BlockFences()

    def arrived(self, request: VllmRequest) -> None:
        request.pulls = True

    def decides(self, *, has_in_flight: bool) -> None:
        loads = self.fetched
        is_rest = not has_in_flight and len(loads.loading) == len(loads.ended)
        loads.is_last_chance = is_rest and not loads.orphans

    def decided(self, launch: VllmLaunch | None, partner: Partner) -> None:
        if launch is not None:
            self.fetched.launched(launch.prefill)
            if self.fences is not None:
                self.fences.launched(launch)
        started, self.fetched.started = self.fetched.started, []
        for request, num_cached in started:
            partner.room_made(request.rid, num_cached)

    @property
    def waits(self) -> bool:
        return bool(self.fetched.loading or self.fetched.orphans or self.fetched.may_wait_for_ever)

    def blocks_of_ended(self) -> list[tuple[RequestBlocks, int]]:
        held = [] if self.fences is None else [each[1:] for each in self.fences.held]
        return [*self.fetched.orphans.values(), *held]

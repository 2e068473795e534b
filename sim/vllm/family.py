"""Family `vllm`: where each part of it is."""

from typing import TYPE_CHECKING, Any

from sim.engine.core import EngineCore
from sim.engine.family import Family
from sim.engine.page_pool import PagePool

if TYPE_CHECKING:
    from sim.vllm.config import VllmConfig
    from sim.vllm.scheduler.scheduler import VllmScheduler


class VllmFamily(Family):
    """vLLM 0.19.0."""

    name = "vllm"

    def build(self, config: "VllmConfig", pool: PagePool[Any]) -> "VllmScheduler":
        """Blocks always have numbers: of `pool` only its size counts."""
        from sim.vllm.cache.manager import BlockManager
        from sim.vllm.scheduler.scheduler import VllmScheduler

        kv = BlockManager(pool.num_pages, pool.page_size, caches=config.enable_prefix_caching)
        return VllmScheduler(config, kv=kv)

    def check(self, engine: EngineCore) -> None:
        from sim.vllm.check import check_vllm_memory

        check_vllm_memory(engine)

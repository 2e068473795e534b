"""The scheduler families there are, and how an engine is built of any of them.

A new family is a folder beside `sim/sglang` and `sim/vllm`, and a line in FAMILIES.
"""

from typing import Any

from sim.engine.check import check_requests
from sim.engine.core import EngineCore
from sim.engine.family import Family
from sim.engine.page_pool import PagePool
from sim.engine.protocols import Executor
from sim.engine.server_config import ServerConfig
from sim.sglang.family import SglangFamily
from sim.vllm.family import VllmFamily

FAMILIES: dict[str, Family] = {family.name: family for family in (SglangFamily(), VllmFamily())}
# What a scenario means that names none.
DEFAULT_FAMILY = SglangFamily.name


def build_engine(config: ServerConfig, *, pool: PagePool[Any], executor: Executor) -> EngineCore:
    """An engine of the configuration's family, whose batches `executor` runs.

    Args:
        config: settings of one of the families.
        pool: the server's pages.
        executor: runs the batches.
    """
    return EngineCore(FAMILIES[config.family].build(config, pool), executor)


def check_engine(engine: EngineCore) -> None:
    """Verify the invariants of docs/invariants.md that hold between any two steps.

    Raises:
        InvariantError: naming what does not hold.
    """
    check_requests(engine)
    FAMILIES[engine.scheduler.family].check(engine)

"""The scheduler families there are, and how an engine is built of any of them.

A new family is a folder beside `sim/sglang` and `sim/vllm`, and a name in FAMILIES. This module
loads nothing: a family's parts are loaded when they are needed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sim.family import Family
from sim.sglang.family import SglangFamily
from sim.vllm.family import VllmFamily
from sim.workload.results.names import AIPERF, ResultFormat

if TYPE_CHECKING:
    from sim.engine.core import EngineCore
    from sim.engine.page_pool import PagePool
    from sim.engine.protocols import Executor
    from sim.engine.server_config import ServerConfig

FAMILIES: dict[str, Family] = {family.name: family for family in (SglangFamily(), VllmFamily())}
# The family of a scenario that names none.
DEFAULT_FAMILY = SglangFamily.name

_OF_FAMILIES = [format_ for family in FAMILIES.values() for format_ in family.result_formats]
# What can be imported, by name: benchmarks before logs.
RESULT_FORMATS: dict[str, ResultFormat] = {
    format_.name: format_
    for format_ in (
        *[each for each in _OF_FAMILIES if each.is_bench],
        AIPERF,
        *[each for each in _OF_FAMILIES if not each.is_bench],
    )
}


def family_of_server(names: Sequence[str]) -> Family | None:
    """The family whose name the first of these names of servers begins with, if there is one."""
    for name in names:
        for family in FAMILIES.values():
            if name.startswith(family.name):
                return family
    return None


def build_engine(
    config: "ServerConfig", *, pool: "PagePool[Any]", executor: "Executor"
) -> "EngineCore":
    """An engine of the configuration's family, whose batches `executor` runs.

    Args:
        config: settings of one of the families.
        pool: the server's pages.
        executor: runs the batches.
    """
    from sim.engine.core import EngineCore

    return EngineCore(FAMILIES[config.family].build(config, pool), executor)


def check_engine(engine: "EngineCore") -> None:
    """Verify the invariants of docs/explanation/invariants.md that hold between any two steps.

    Raises:
        InvariantError: naming what does not hold.
    """
    from sim.engine.check import check_requests

    check_requests(engine)
    FAMILIES[engine.scheduler.family].check(engine)

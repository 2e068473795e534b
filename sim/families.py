"""All scheduler families by name, and how to build and check an engine of any of them.

A new family is a folder beside `sim/sglang` and `sim/vllm`, and an entry in FAMILIES. Importing
this module does not load the families' schedulers: they are loaded when they are needed.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sim.core.errors import InputError
from sim.engine.server_config import goes_row_by_row
from sim.family import Family
from sim.sglang.family import SglangFamily
from sim.vllm.family import VllmFamily
from sim.workload.results import (
    AIBRIX,
    AIPERF,
    GENAI_PERF,
    GUIDELLM,
    INFERENCE_PERF,
    INFERENCEX,
    LLMPERF,
    MEASURED,
    ResultFormat,
)

if TYPE_CHECKING:
    from sim.core.batch import Executor, ScriptedExecutor
    from sim.engine.core import EngineCore
    from sim.engine.page_pool import PagePool
    from sim.engine.ranks import RankRules
    from sim.engine.server_config import ServerConfig
    from sim.server_log.read import ServerLog
    from sim.server_metrics.scrape import MetricNames

FAMILIES: dict[str, Family] = {family.name: family for family in (SglangFamily(), VllmFamily())}
# The family of a scenario that names none.
DEFAULT_FAMILY = SglangFamily.name

_OF_FAMILIES = [format_ for family in FAMILIES.values() for format_ in family.result_formats]
# The formats that `simulate import` reads, by name: first those of benchmarks, then logs.
RESULT_FORMATS: dict[str, ResultFormat] = {
    format_.name: format_
    for format_ in (
        *[each for each in _OF_FAMILIES if each.is_bench],
        AIPERF,
        GUIDELLM,
        GENAI_PERF,
        LLMPERF,
        INFERENCE_PERF,
        AIBRIX,
        INFERENCEX,
        MEASURED,
        *[each for each in _OF_FAMILIES if not each.is_bench],
    )
}

# A server's own log is no list of requests: `simulate import` reads it in another way.
SERVER_LOG = "server-log"


def family_named(name: str) -> Family:
    """The family of this name, which may be the user's own (`module:Class`).

    Raises KeyError: there is none.
    """
    from sim.family.user_family import user_family

    own = user_family(name)
    return FAMILIES[name] if own is None else own


def family_of_server(names: Sequence[str]) -> Family | None:
    """The family of the first server name that begins with a family's name; None if none does."""
    for name in names:
        for family in FAMILIES.values():
            if name.startswith(family.name):
                return family
    return None


def open_server_log(paths: "Sequence[Path]") -> "ServerLog":
    """The log of a server of any family: one file or, rotated, several, gzipped or not.

    Which family it is shows in the first line that only one engine writes. Files are read in the
    order of their times, whatever order they are given in.

    Raises InputError: a file cannot be read, or no line is a known engine's.
    """
    from sim.server_log.read import ServerLog, in_order
    from sim.server_log.text_lines import Lines

    readers = {family: family.engine_log() for family in FAMILIES.values()}
    for line in (lines := Lines(paths)):
        for family, reader in readers.items():
            if reader is not None and reader.read(lines.number, line) and reader.is_recognised:
                found = family.engine_log()
                assert found is not None  # noqa: S101 - there was one before
                return ServerLog(in_order(paths, type(found)), found)
    titles = " or ".join(family.title for family in FAMILIES.values())
    raise InputError(f"{', '.join(map(str, paths))}: no line is of a log of {titles}")


def known_metrics() -> "list[MetricNames]":
    found = (family.metrics() for family in FAMILIES.values())
    return [names for names in found if names is not None]


def build_engine(config: "ServerConfig", *, pool: "PagePool", executor: "Executor") -> "EngineCore":
    """Build an engine of the configuration's family."""
    from sim.engine.core import EngineCore
    from sim.engine.parts import LockstepResults, Results, Role
    from sim.engine.request import TokenClock
    from sim.engine.rows import RowClock, RowResults

    family = family_named(config.family)
    scheduler = family.build(config, pool)
    num_places = config.micro_batches
    results: Results
    if scheduler.goes_row_by_row:
        results = RowResults(
            has_drafts=getattr(config, "speculation", None) is not None,
            outputs_ahead=getattr(executor, "outputs_ahead", None),
        )
    else:
        # The rows of one micro-batch do not get their tokens with those of another.
        results = LockstepResults(RowClock() if scheduler.takes_turns else TokenClock())
    if num_places > 1 and config.overlaps and not scheduler.takes_turns:
        num_places += 1  # Under async scheduling one step more than stages may be in flight.
    role = family.role(config, scheduler, executor) or Role()
    return EngineCore(scheduler, executor, results=results, role=role, num_places=num_places)


def build_executor(config: "ServerConfig") -> "ScriptedExecutor":
    """The executor of a simulated server, which generates scripted outputs."""
    from sim.core.batch import ScriptedExecutor
    from sim.engine.row_executor import RowExecutor

    if not goes_row_by_row(config):
        return ScriptedExecutor()
    keeps = getattr(config, "keeps_tokens_in_flight", True)
    speculation = getattr(config, "speculation", None)
    return RowExecutor(speculation, keeps_tokens_in_flight=keeps)


def rank_rules(
    config: "ServerConfig", engines: "Sequence[EngineCore]", num_front_ends: int = 1
) -> "RankRules":
    """The rules of the configuration's family for the ranks of a group.

    `config` has the settings of each rank; the front end has `num_front_ends` processes.
    """
    return family_named(config.family).rank_rules(config, engines, num_front_ends)


def check_engine(engine: "EngineCore") -> None:
    """Verify the invariants of docs/explanation/invariants.md that hold between any two steps."""
    from sim.engine.account import check_requests

    check_requests(engine)
    family_named(engine.scheduler.family).check(engine)

"""What a search for deployments says of memory beside the GPUs: columns and sentences."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from sim.report.hit_rates import KNEE
from sim.sweep.capacity.deployments import HIT_RATE, TriedDeployment
from sim.sweep.capacity.memory import BYTES_PER_GB
from sim.sweep.capacity.plan import CapacityPlan
from sim.tables.table import UNDEFINED, counted, number


class MemoryColumn(NamedTuple):
    """A column of numbers: its heading, and the cell of a deployment."""

    heading: str
    cell: Callable[[TriedDeployment], str]


def size_columns(plan: CapacityPlan) -> list[MemoryColumn]:
    """The sizes of the tiers that are searched for."""
    section = plan.section.memory
    if section is None:
        return []
    store = "shared store TB" if section.store is not None and section.store.shared else "store TB"
    columns = [
        MemoryColumn("DRAM GB", lambda one: _size(one, lambda memory: memory[0])),
        MemoryColumn(store, lambda one: _size(one, lambda memory: memory[1])),
    ]
    has_sizes = any(section.dram_gb), any(section.store_tb)
    return [column for column, has in zip(columns, has_sizes, strict=True) if has]


def _size(one: TriedDeployment, part: Callable[[tuple[float, float]], float]) -> str:
    memory = one.candidate.memory
    size = 0.0 if memory is None else part((memory.dram_gb, memory.store_tb))
    return f"{size:g}" if size else UNDEFINED


def worth_columns(plan: CapacityPlan) -> list[MemoryColumn]:
    """What memory is worth: hits, and the price of tokens."""
    if plan.section.memory is None:
        return []
    return [
        MemoryColumn("hit rate %", lambda one: number(one.interval(HIT_RATE).mean)),
        MemoryColumn("per 1M tokens", lambda one: _price(one.cost_per_million_tokens)),
    ]


def _price(value: float | None) -> str:
    """Three digits of a price that may be small."""
    return UNDEFINED if value is None else f"{value:.3g}"


def memory_lines(plan: CapacityPlan, deployments: Sequence[TriedDeployment]) -> Iterator[str]:
    """What the traffic's KV says of sizes; what the first deployment rests on, and saves."""
    kv = plan.kv
    if kv is None:
        return
    token_bytes = next((one.token_bytes for one in plan.candidates if one.token_bytes), None)

    def size(num_tokens: float) -> str:
        gb = (
            ""
            if token_bytes is None
            else f" ({number(num_tokens * token_bytes / BYTES_PER_GB)} GB)"
        )
        return f"{num_tokens:,.0f} tokens{gb}"

    curve, block = kv.curve, kv.curve.block_size
    if not curve.max_blocks:
        yield "No cache finds anything in this traffic: no request begins like an earlier one."
    else:
        yield (
            f"Caches: an unlimited one finds {number(curve.hit_pct(curve.max_blocks))} % of the"
            f" prompts' tokens; one of all servers, in the order of arrivals, needs"
            f" {size(curve.smallest(KNEE) * block)} for {100 * KNEE:.0f} % of that and"
            f" {size(curve.max_blocks * block)} for all."
        )
    if plan.num_useless:
        yield (
            f"{counted(plan.num_useless, 'candidate')} with more memory than can help left out:"
            f" the traffic has no more than {size(kv.num_tokens)} of KV, and nothing ever leaves a"
            " memory that holds all of it."
        )
    yield from _without_memory(plan, deployments)


def _without_memory(plan: CapacityPlan, deployments: Sequence[TriedDeployment]) -> Iterator[str]:
    """If the first deployment has memory: what its times rest on, and the cheapest without any."""
    first = next(iter(deployments), None)
    if first is None or first.cost is None or not _has_memory(first) or plan.is_for_load:
        return
    yield (
        "Times of KV that is loaded from DRAM or read from a store follow from their bandwidths:"
        " they were not measured, and neither were servers with such memory."
    )
    bare = next((one for one in deployments if not _has_memory(one) and one.cost is not None), None)
    if bare is None or bare.cost is None:
        return
    found = f"{number(bare.cost)} per hour" + ("" if bare.meets else " or more")
    if bare.misses:
        found = f"the SLO is missed with {counted(bare.replicas or 0, 'replica')}"
    yield f"Without memory beside the GPUs: {found}; the first costs {number(first.cost)} per hour."


def _has_memory(one: TriedDeployment) -> bool:
    memory = one.candidate.memory
    return memory is not None and (memory.dram_gb > 0 or memory.store_tb > 0)

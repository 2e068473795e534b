"""How much KV some traffic has, and what caches of every size find of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from sim.scenario.build import located_errors
from sim.scenario.search_sections import MemorySection
from sim.sweep.capacity.memory import BYTES_PER_GB, BYTES_PER_TB, Memory
from sim.sweep.plan import Plan, Settings
from sim.workload.kinds.build import build_workload
from sim.workload.reuse.blocks import (
    ReadBlocks,
    block_size_of,
    in_time_order,
    num_generated,
    request_blocks,
)
from sim.workload.reuse.curve import HitCurve, curve_of
from sim.workload.traces.read import TraceReader
from sim.workload.workload import Workload

# More blocks take long; blocks are larger then.
_MOST_BLOCKS = 10_000_000
# Engines keep whole pages, and pages of memory: a little more than the tokens.
_ROUNDING = 1.01


@dataclass(frozen=True, slots=True)
class TrafficKv:
    """The KV of some traffic.

    Attributes:
        num_tokens: the most tokens of KV that there are with any seed; a prefix that prompts share
            counts once. A memory in which they have room never evicts anything.
        curve: what LRU caches find with the first seed.
    """

    num_tokens: int
    curve: HitCurve

    def num_bytes(self, token_bytes: int) -> float:
        """The size of a memory that never evicts anything."""
        return self.num_tokens * token_bytes * _ROUNDING

    def hit_pct(self, num_tokens: float) -> float:
        """The percentage of the prompts' tokens that a cache of `num_tokens` finds."""
        return self.curve.hit_pct(int(num_tokens / self.curve.block_size))


def traffic_kv(
    plan: Plan, traffic: Settings, seeds: Sequence[int], read_trace: TraceReader
) -> TrafficKv:
    """The KV of a scenario's traffic, with the settings that scale it.

    Raises InputError: the traffic cannot be built.
    """

    def blocks_of(seed: int) -> ReadBlocks:
        loaded = plan.vary({**traffic, "seed": seed})
        with located_errors(loaded):
            workload = build_workload(
                loaded.scenario.workload,
                seed=seed,
                base_dir=loaded.base_dir,
                read_trace=read_trace,
            )
            return request_blocks(workload, _block_size(workload))

    first = blocks_of(seeds[0])
    of_others = [_different_tokens(blocks_of(seed)) for seed in seeds[1:]]
    return TrafficKv(max([_different_tokens(first), *of_others]), curve_of(first))


def _block_size(workload: Workload) -> int:
    """The size of the first prompt's blocks, or a multiple if there were too many of them."""
    size, num_tokens = 0, 0
    for request in in_time_order(workload):
        size = size or block_size_of(request.spec.prompt)
        num_tokens += len(request.spec.prompt) + num_generated(request)
    return max(1, size) * max(1, -(-num_tokens // (_MOST_BLOCKS * max(1, size))))


def _different_tokens(blocks: ReadBlocks) -> int:
    """Tokens of different full blocks, and what each request may have beside full blocks."""
    num_requests = len(blocks.offsets) - 1
    return (len(np.unique(blocks.keys)) + num_requests) * blocks.block_size


def is_useless(memory: Memory, section: MemorySection, holds_all: float) -> bool:
    """Whether servers decide the same with a smaller memory of those that are listed.

    Nothing ever leaves a memory of `holds_all` bytes, so larger ones do the same. And a server that
    has all it ever computed in its host memory finds nothing in a store of its own. With others' KV
    in reach no size of host memory is useless: it limits how much is fetched at a time.
    """
    dram, store = memory.tiers
    least_dram = min(
        (size for size in section.dram_gb if size * BYTES_PER_GB >= holds_all), default=inf
    )
    least_store = min(
        (size for size in section.store_tb if size * BYTES_PER_TB >= holds_all), default=inf
    )
    if memory.store_tb > least_store:
        return True
    if memory.is_shared and store:
        return False
    return memory.dram_gb > least_dram or (dram >= holds_all and store > 0)

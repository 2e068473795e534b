"""Hit rate against the size of a cache: a workload's miss-ratio curve, exact for LRU."""

from dataclasses import dataclass

import numpy as np

from sim.core.arrays import Int64
from sim.workload.reuse.blocks import ReadBlocks, request_blocks
from sim.workload.reuse.stack_distance import found_runs
from sim.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class HitCurve:
    """What caches of every size find of a workload's prompts.

    Attributes:
        block_size: tokens of a block.
        num_blocks: blocks that all requests use, each counted as often as it is used.
        num_different: different ones of these.
        prompt_tokens: of all requests.
        found: blocks that a cache of 0, 1, 2... blocks finds; a larger one finds no more than the
            last.
    """

    block_size: int
    num_blocks: int
    num_different: int
    prompt_tokens: int
    found: Int64

    @property
    def max_blocks(self) -> int:
        """The smallest cache that finds all that an unlimited one finds."""
        return len(self.found) - 1

    def hit_pct(self, num_blocks: int) -> float:
        """The share of the prompts' tokens that a cache of this size finds, in percent."""
        found = int(self.found[min(num_blocks, self.max_blocks)])
        return 100 * found * self.block_size / max(1, self.prompt_tokens)

    def smallest(self, share: float) -> int:
        """Blocks of the smallest cache that finds this share of what an unlimited one finds."""
        return int(np.searchsorted(self.found, share * self.found[-1]))


def hit_curve(workload: Workload, block_size: int | None = None) -> HitCurve:
    """The curve of a workload; `block_size` None: that of its trace, or 16 tokens."""
    return curve_of(request_blocks(workload, block_size))


def curve_of(blocks: ReadBlocks) -> HitCurve:
    """The curve of these blocks."""
    runs = found_runs(blocks)
    useful = np.clip(blocks.findable[runs.request] - runs.first, 0, runs.length)
    depth = runs.depth[useful > 0]
    ends = depth + useful[useful > 0]
    most = int(ends.max(initial=1))
    # One block more is found at each size from `depth` on, until the run's end.
    steps = np.bincount(depth, minlength=most + 1) - np.bincount(ends, minlength=most + 1)
    found = np.cumsum(np.cumsum(steps))[:most]
    num_again = int(runs.length.sum())
    return HitCurve(
        block_size=blocks.block_size,
        num_blocks=len(blocks.keys),
        num_different=len(blocks.keys) - num_again,
        prompt_tokens=int(blocks.prompt_tokens.sum()),
        found=found,
    )

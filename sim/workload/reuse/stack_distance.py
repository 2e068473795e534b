"""How far down a least-recently-used stack blocks are found, for all requests in one pass.

A cache of C blocks that evicts the least recently used one holds the first C of the stack of all
blocks, sorted by last use (Mattson et al., "Evaluation techniques for storage hierarchies", 1970).
So the depth of a block in this stack says which sizes of a cache hold it. A request uses its last
block first and its first block last, as vLLM frees blocks (`SingleTypeKVCacheManager.free`) and
SGLang evicts leaves: a block is never above the one before it, so the found blocks of a prompt are
always its first.
"""

from dataclasses import dataclass

import numpy as np

from sim.core.arrays import Int64
from sim.workload.reuse.blocks import ReadBlocks


@dataclass(frozen=True, slots=True)
class FoundRuns:
    """Runs of blocks that were last used by the same earlier request, request by request.

    Attributes:
        request: the request that finds the run.
        first: the place of the run's first block in the request.
        length: blocks of the run.
        depth: how deep its first block is in the stack when the request comes, from 1; the others
            follow one by one.
    """

    request: Int64
    first: Int64
    length: Int64
    depth: Int64


def found_runs(blocks: ReadBlocks) -> FoundRuns:
    """The depth of every block that an earlier request used.

    Uses are numbered from 0 in their order. The blocks above one that was last used at p, when use
    s is the next, are the different blocks used from p to s: s - p - 1 uses, less those of blocks
    that were used from p on before. Those have their own last use after p, so they are counted as
    pairs of runs (`_later_partners`).
    """
    offsets = blocks.offsets
    num_blocks = np.diff(offsets)
    request = np.repeat(np.arange(len(num_blocks)), num_blocks)
    # Use number t is of the block at `backwards[t]`: each request from its last block to its first.
    backwards = (offsets[:-1] + offsets[1:] - 1)[request] - np.arange(len(request))
    previous = _previous_uses(blocks.keys[backwards])
    # Runs of uses that follow each other as their previous uses did.
    again = np.flatnonzero(previous >= 0)
    before = previous[again]
    begins = np.ones(len(again), dtype=np.bool_)
    begins[1:] = (np.diff(again) != 1) | (np.diff(before) != 1) | (np.diff(request[again]) != 0)
    starts = np.flatnonzero(begins)
    length = np.diff(np.append(starts, len(again)))
    last = starts + length - 1  # the run's first block is used last
    whose = request[again[starts]]
    shared = _later_partners(before[last], length)
    depth = offsets[whose] - before[last] - shared
    return FoundRuns(whose, backwards[again[last]] - offsets[whose], length, depth)


def _previous_uses(keys: "np.ndarray[tuple[int], np.dtype[np.uint64]]") -> Int64:
    """For each use, the number of the last one before it with the same key; -1: there is none."""
    order = np.argsort(keys, kind="stable")
    in_order = keys[order]
    is_same = in_order[1:] == in_order[:-1]
    previous = np.full(len(keys), -1, dtype=np.int64)
    previous[order[1:][is_same]] = order[:-1][is_same]
    return previous


def _later_partners(values: Int64, weights: Int64) -> Int64:
    """For each element, the sum of the weights of earlier elements that have a larger value.

    All values differ. They are replaced by their ranks and sorted bit by bit, the highest first,
    each time without changing the order of equal ones. Where two elements part, the one with bit 0
    has the smaller value: it counts the elements with bit 1 that are before it.
    """
    num = len(values)
    ranks = np.empty(num, dtype=np.int64)
    ranks[np.argsort(values)] = np.arange(num)
    rank, weight, total = ranks, weights, np.zeros(num, dtype=np.int64)
    for bit in reversed(range(max(0, num - 1).bit_length())):
        one = rank >> bit & 1
        # Elements with equal higher bits are together; the ranks say where their group begins.
        group = rank >> (bit + 1) << (bit + 1)
        ones_before = np.cumsum(one) - one
        heavy = weight * one
        heavy_before = np.cumsum(heavy) - heavy
        total = total + (1 - one) * (heavy_before - heavy_before[group])
        num_ones = ones_before - ones_before[group]
        place = np.where(
            one, group + (1 << bit) + num_ones, group + (np.arange(num) - group - num_ones)
        )
        moved = np.empty((3, num), dtype=np.int64)
        moved[:, place] = rank, weight, total
        rank, weight, total = moved
    return total[ranks]

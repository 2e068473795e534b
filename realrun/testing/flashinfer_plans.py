"""How FlashInfer 0.6.14 divides a batch into work: the sizes of its plans.

These are the rules of `include/flashinfer/attention/scheduler.cuh`, as far as they say how much of
the workspaces a plan takes, and how many thread blocks a graph launches. A graph launches as many
as were planned when it was captured, so each later plan must have the same number.
"""

from collections.abc import Sequence
from typing import NamedTuple

from realrun.testing.flashinfer_contract import require

_INT_BYTES = 4
_FLOAT_BYTES = 4
_BLOCKS_PER_SM = 2
# A thread block of decode has at least 128 threads, and an SM has room for 2,048.
_MAX_DECODE_BLOCKS_PER_SM = 16
_DECODE_GROUPS = (1, 2, 3, 4, 8)
_SAME_SCHEDULE_FOR_ALL_HEADS_FROM = 4096


class PlanShape(NamedTuple):
    """What is the same for all plans of a wrapper."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    page_size: int
    num_sms: int
    is_graph: bool

    @property
    def heads_a_group(self) -> int:
        require(self.num_heads % self.num_kv_heads == 0, "query heads are no multiple of KV heads")
        return self.num_heads // self.num_kv_heads


class PlanSizes(NamedTuple):
    """What a plan takes.

    Attributes:
        num_blocks: thread blocks of a launch, for each KV head; of fa3, pieces of work.
        tile_rows: query rows of a thread block.
        float_bytes: for partial results.
        int_bytes: for the lists of work.
    """

    num_blocks: int
    tile_rows: int
    float_bytes: int
    int_bytes: int


def fa2_sizes(
    shape: PlanShape, query_lens: Sequence[int], num_pages: Sequence[int], total_rows: int
) -> PlanSizes:
    """The plan of the tensor-core kernel, for prefill, mixed and decode batches."""
    batch = len(query_lens)
    packed = [length * shape.heads_a_group for length in query_lens]
    if shape.is_graph:
        tile = _tile_rows((total_rows - batch + 1) * shape.heads_a_group, shape.head_dim)
        num_tiles = -(-total_rows * shape.heads_a_group // tile) + batch - 1
    else:
        tile = _tile_rows(sum(packed) // batch, shape.head_dim)
        num_tiles = 0
    limit = _BLOCKS_PER_SM * shape.num_sms // shape.num_kv_heads
    tiles = [-(-length // tile) for length in packed]
    chunk = _smallest_chunk(tiles, num_pages, limit, shape.page_size)
    used = _num_blocks(tiles, num_pages, chunk)
    blocks = max(limit, num_tiles) if shape.is_graph else used
    require(used <= blocks, "a plan has more thread blocks than its graph launches")
    lists = _INT_BYTES * (3 * blocks + batch + 3)
    partial = 0
    if shape.is_graph or chunk < max(1, *num_pages):
        lists += _INT_BYTES * (total_rows + 1) + blocks
        partial = shape.num_heads * blocks * tile * (shape.head_dim + 1) * _FLOAT_BYTES
    return PlanSizes(blocks, tile, partial, lists)


def decode_sizes(shape: PlanShape, num_pages: Sequence[int]) -> PlanSizes:
    """The plan of the CUDA-core decode kernel, if an SM takes as many blocks as it ever can."""
    group, batch = shape.heads_a_group, len(num_pages)
    require(group in _DECODE_GROUPS, f"no CUDA-core decode for {group} query heads a KV head")
    limit = _MAX_DECODE_BLOCKS_PER_SM * shape.num_sms // shape.num_kv_heads
    splits, used = batch < limit, batch
    if splits:
        chunk = _smallest_chunk([1] * batch, num_pages, limit, shape.page_size)
        used = _num_blocks([1] * batch, num_pages, chunk)
        splits = shape.is_graph or used != batch
    blocks = limit if shape.is_graph and splits else used
    require(used <= blocks, "a plan has more thread blocks than its graph launches")
    lists = _INT_BYTES * (3 * blocks + 2)
    partial = 0
    if splits:
        lists += blocks
        partial = shape.num_heads * blocks * (shape.head_dim + 1) * _FLOAT_BYTES
    return PlanSizes(blocks, 1, partial, lists)


def fa3_sizes(shape: PlanShape, query_lens: Sequence[int]) -> PlanSizes:
    """The plan of the Hopper kernel, which splits no context."""
    tile = 192 if shape.head_dim == 64 else 128
    most = -(-sum(query_lens) // tile) + len(query_lens) - 1
    num_lists = 1 if most > _SAME_SCHEDULE_FOR_ALL_HEADS_FROM else shape.num_heads
    works = sum(-(-length // tile) for length in query_lens) * num_lists
    return PlanSizes(works, tile, 0, _INT_BYTES * (7 * works + shape.num_sms + 1))


def _tile_rows(mean_rows: int, head_dim: int) -> int:
    if mean_rows > 64 and head_dim < 256:
        return 128
    return 64 if mean_rows > 16 else 16


def _smallest_chunk(
    tiles: Sequence[int], num_pages: Sequence[int], limit: int, page_size: int
) -> int:
    """The fewest pages of a thread block with which there are at most `limit` blocks."""
    low, high = max(128 // page_size, 1), max(1, *num_pages)
    while low < high:
        middle = (low + high) // 2
        if _num_blocks(tiles, num_pages, middle) > limit:
            low = middle + 1
        else:
            high = middle
    return low


def _num_blocks(tiles: Sequence[int], num_pages: Sequence[int], chunk: int) -> int:
    """Thread blocks of all rows: tiles of queries times chunks of context."""
    rows = zip(tiles, num_pages, strict=True)
    return sum(count * -(-max(pages, 1) // chunk) for count, pages in rows)

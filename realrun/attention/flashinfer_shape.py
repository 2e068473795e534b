"""The sizes that FlashInfer's plans depend on, which of them are supported, and the workspace."""

from dataclasses import dataclass

import torch

from realrun.attention.flashinfer_library import library_problem
from realrun.model.kv_tensors import KVTensors
from realrun.model.paged_model import PagedModel

# FlashInfer has kernels for more sizes; these are the ones that `realrun check` covers.
_HEAD_DIMS = (64, 128)
_CUDA_CORE_GROUPS = (1, 2, 3, 4, 8)

# Query rows of fa2's largest tile, and the thread blocks that fa2 plans for each SM.
_TILE_ROWS = 128
_BLOCKS_PER_SM = 2
_MIN_WORKSPACE_BYTES = 128 * 2**20
_ALIGNMENT_BYTES = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """The sizes that FlashInfer's plans depend on; all layers of a model have the same.

    Attributes:
        num_heads: query heads.
        num_kv_heads: key and value heads.
        head_dim: width of a head.
        page_size: tokens of a page.
        dtype: type of queries, keys, values and outputs.
        device: the device of these tensors.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    page_size: int
    dtype: torch.dtype
    device: torch.device

    @property
    def heads_a_group(self) -> int:
        """Query heads that share a KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def decode_uses_tensor_cores(self) -> bool:
        """Whether the decode kernel uses tensor cores.

        The kernel without tensor cores is compiled for some group sizes only. It is also too slow
        for groups of 4 or more query heads: each element of K and V is then used in 4 or more
        multiplications, and CUDA cores cannot do them as fast as the memory delivers.
        """
        return self.heads_a_group >= 4 or self.heads_a_group not in _CUDA_CORE_GROUPS


def workspace_bytes(shape: AttentionShape, *, num_sms: int, num_graph_rows: int = 0) -> int:
    """Bytes of the workspace that FlashInfer needs for partial results.

    FlashInfer splits the context of long rows to use the whole device, and refuses a plan whose
    partial results do not fit into the workspace. Such a plan has at most two thread blocks for
    each SM, over all KV heads, and each block has a tile of 128 query rows (each query head of a
    token is one query row). A plan for a graph may have more: all tiles that its rows can need.

    Args:
        shape: sizes of the heads.
        num_sms: streaming multiprocessors (SMs) of the device.
        num_graph_rows: decode rows of the largest graph; 0 without graphs.
    """
    num_blocks = max(1, _BLOCKS_PER_SM * num_sms // shape.num_kv_heads)
    # A decode row has few query rows, so a graph's plan uses one of fa2's smaller tiles.
    tile_rows = 16 if shape.heads_a_group <= 16 else 64
    num_tiles = num_graph_rows * shape.heads_a_group // tile_rows + num_graph_rows + 1
    num_partial_rows = max(num_blocks * _TILE_ROWS, num_tiles * tile_rows)
    # For each partial row a float32 output, and its log-sum-exp.
    num_bytes = shape.num_heads * num_partial_rows * (shape.head_dim + 1) * 4
    return max(_MIN_WORKSPACE_BYTES, num_bytes + _ALIGNMENT_BYTES)


def attention_shape(model: PagedModel, kv: KVTensors) -> AttentionShape:
    """The sizes of a model and its pages."""
    return AttentionShape(
        num_heads=model.shape.num_heads,
        num_kv_heads=model.shape.num_kv_heads,
        head_dim=model.shape.head_dim,
        page_size=kv.page_size,
        dtype=model.dtype,
        device=model.device,
    )


def flashinfer_problem(shape: AttentionShape) -> str | None:
    """Why FlashInfer cannot be used here for a shape, in a few words; None if it can be used."""
    problem = library_problem(shape.device, shape.dtype)
    if problem is None and shape.head_dim not in _HEAD_DIMS:
        dims = " and ".join(str(dim) for dim in _HEAD_DIMS)
        return f"supports heads of width {dims}, but the model's have {shape.head_dim}"
    return problem

"""What FlashInfer plans by, what of it is served here, and how much workspace it needs."""

from dataclasses import dataclass
from importlib.util import find_spec

import torch

from realrun.kv_tensors import KVTensors
from realrun.model import PagedModel

# Kernels exist for more, but these are what is served here and what the checks cover.
_HEAD_DIMS = (64, 128)
_CUDA_CORE_GROUPS = (1, 2, 3, 4, 8)

# Query rows of the largest tile of the fa2 kernels, and thread blocks they plan for on each SM.
_TILE_ROWS = 128
_BLOCKS_PER_SM = 2
_MIN_WORKSPACE_BYTES = 128 * 2**20
_ALIGNMENT_BYTES = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """What FlashInfer plans by, the same for all layers of a model.

    Attributes:
        num_heads: query heads.
        num_kv_heads: key and value heads.
        head_dim: width of a head.
        page_size: tokens of a page.
        dtype: of queries, keys, values and outputs.
        device: where they are.
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
        """Whether decode rows go through the tensor cores.

        The CUDA-core kernel has been compiled for some group sizes only. From 4 query heads a KV
        head on, tensor cores are the better choice too: each element of K and V that is read
        takes part in as many multiplications, and the CUDA cores, which also convert from bf16
        and sum up across threads, keep up with the memory no longer.
        """
        return self.heads_a_group >= 4 or self.heads_a_group not in _CUDA_CORE_GROUPS


def workspace_bytes(shape: AttentionShape, *, num_sms: int, num_graph_rows: int = 0) -> int:
    """Bytes of the workspace for partial results of long rows, cut up to fill the device.

    FlashInfer refuses a plan whose partial results do not fit. A plan that cuts rows up has at
    most two thread blocks a SM over all KV heads, each with a tile of 128 query rows (a token's
    heads of one group are that many rows). A plan for a graph has as many tiles as its rows can
    need, however they are laid out.

    Args:
        shape: heads and their width.
        num_sms: streaming multiprocessors of the device.
        num_graph_rows: decode rows of the largest graph, 0 without graphs.
    """
    num_blocks = max(1, _BLOCKS_PER_SM * num_sms // shape.num_kv_heads)
    tile_rows = 16 if shape.heads_a_group <= 16 else 64
    num_tiles = num_graph_rows * shape.heads_a_group // tile_rows + num_graph_rows + 1
    num_partial_rows = max(num_blocks * _TILE_ROWS, num_tiles * tile_rows)
    # A float32 output and its log-sum-exp for each.
    num_bytes = shape.num_heads * num_partial_rows * (shape.head_dim + 1) * 4
    return max(_MIN_WORKSPACE_BYTES, num_bytes + _ALIGNMENT_BYTES)


def attention_shape(model: PagedModel, kv: KVTensors) -> AttentionShape:
    """The shape of a model and its pages."""
    return AttentionShape(
        num_heads=model.shape.num_heads,
        num_kv_heads=model.shape.num_kv_heads,
        head_dim=model.shape.head_dim,
        page_size=kv.page_size,
        dtype=model.dtype,
        device=model.device,
    )


def flashinfer_problem(shape: AttentionShape) -> str | None:
    """Why FlashInfer does not serve a shape here, in a few words; None if it does."""
    problem = shape_problem(shape)
    if problem is None and find_spec("flashinfer") is None:
        return "not installed (servetwin's extra `gpu`)"
    return problem


def shape_problem(shape: AttentionShape) -> str | None:
    """Why FlashInfer does not serve a shape, installed or not."""
    if shape.device.type != "cuda":
        return f"needs a CUDA device, the model is on {shape.device}"
    if shape.dtype is not torch.bfloat16:
        return f"serves bfloat16, the model is {str(shape.dtype).removeprefix('torch.')}"
    if shape.head_dim not in _HEAD_DIMS:
        dims = " and ".join(str(dim) for dim in _HEAD_DIMS)
        return f"serves heads of {dims}, the model's have {shape.head_dim}"
    return None

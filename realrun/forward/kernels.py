"""The kernels of a forward pass that are neither matrix products nor attention.

A kernel does in one launch what plain torch does in several. Launches matter: on an H100 a pass of
Qwen2.5-0.5B with 40 launches a layer takes the host 25 ms, for any chunk of up to 4,000 tokens.
"""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu


class Kernels(Protocol):
    """Computes on the device. Every function enqueues its work and waits for nothing."""

    def rms_norm(self, rows: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        """Normalise each vector of the last dimension; [..., width]."""
        ...

    def add_rms_norm(self, rows: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> None:
        """Add `rows` to `residual`, then set `rows` to the normalised sum; both [tokens, width]."""
        ...

    def rotate(self, query: Tensor, key: Tensor, positions: Tensor, cos_sin: Tensor) -> None:
        """Apply rotary embedding (RoPE) in place.

        Args:
            query: [num_tokens, num_heads, head_dim]; heads must lie next to each other.
            key: [num_tokens, num_kv_heads, head_dim], in the same layout.
            positions: int64 [num_tokens].
            cos_sin: float32 [max_positions, head_dim]: cosines, then sines, of each position.
        """
        ...

    def silu_and_mul(self, gate_and_up: Tensor) -> Tensor:
        """SiLU of the first half times the second half; [num_tokens, 2 * width] to [.., width]."""
        ...


class TorchKernels:
    """The same with functions of torch, for any device."""

    def rms_norm(self, rows: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        return rms_norm(rows, weight.shape, weight, epsilon)

    def add_rms_norm(self, rows: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> None:
        residual.add_(rows)
        rows.copy_(rms_norm(residual, weight.shape, weight, epsilon))

    def rotate(self, query: Tensor, key: Tensor, positions: Tensor, cos_sin: Tensor) -> None:
        cos, sin = cos_sin[positions].unsqueeze(1).chunk(2, dim=-1)
        for heads in (query, key):
            first, second = heads.float().chunk(2, dim=-1)
            heads.copy_(torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1))

    def silu_and_mul(self, gate_and_up: Tensor) -> Tensor:
        gate, up = gate_and_up.chunk(2, dim=-1)
        return silu(gate) * up

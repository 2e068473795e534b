"""The kernels of FlashInfer 0.6.14, for bfloat16 on a GPU."""

from importlib import import_module
from typing import Any

from torch import Tensor


class FlashInferKernels:
    """`Kernels` of the library, one launch each."""

    def __init__(self) -> None:
        self._norm: Any = import_module("flashinfer.norm")
        self._rope: Any = import_module("flashinfer.rope")
        self._activation: Any = import_module("flashinfer.activation")

    def rms_norm(self, rows: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        normalised: Tensor = self._norm.rmsnorm(rows, weight, epsilon)
        return normalised

    def add_rms_norm(self, rows: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> None:
        self._norm.fused_add_rmsnorm(rows, residual, weight, epsilon)

    def rotate(self, query: Tensor, key: Tensor, positions: Tensor, cos_sin: Tensor) -> None:
        self._rope.apply_rope_with_cos_sin_cache_inplace(
            positions, query.flatten(1), key.flatten(1), query.shape[-1], cos_sin
        )

    def silu_and_mul(self, gate_and_up: Tensor) -> Tensor:
        activated: Tensor = self._activation.silu_and_mul(gate_and_up)
        return activated

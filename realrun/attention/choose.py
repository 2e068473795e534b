"""Chooses the attention backend for a model on a device."""

from dataclasses import replace
from typing import Literal

import torch

from realrun.attention.backend import AttentionBackend
from realrun.attention.flashinfer import FlashInferAttention, PrefillBackend
from realrun.attention.flashinfer_shape import attention_shape, flashinfer_problem
from realrun.attention.reference import ReferenceAttention
from realrun.model.kv_tensors import KVTensors
from realrun.model.paged_model import PagedModel
from sim.core.errors import InputError

AttentionName = Literal["auto", "reference", "flashinfer", "flashinfer-fa2", "flashinfer-fa3"]

_KERNELS: dict[str, PrefillBackend] = {"flashinfer-fa2": "fa2", "flashinfer-fa3": "fa3"}


def build_attention(
    name: AttentionName, model: PagedModel, kv: KVTensors, device: torch.device
) -> AttentionBackend:
    """An attention backend for a model and its KV tensors, which are on this device.

    `auto` is flashinfer if it is installed and supports the model, else reference. `flashinfer`
    chooses a prefill kernel for each batch; `flashinfer-fa2` and `flashinfer-fa3` always use the
    kernel in their name.

    Raises:
        InputError: the backend cannot run here, or does not support the model.
    """
    problem = flashinfer_problem(replace(attention_shape(model, kv), device=device))
    if name == "reference" or (name == "auto" and problem is not None):
        return ReferenceAttention(kv.layers[0], model.shape.num_heads)
    if problem is not None:
        raise InputError(f"attention flashinfer: {problem}")
    return FlashInferAttention(model, kv, prefill_backend=_KERNELS.get(name, "auto"))

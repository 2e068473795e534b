"""Which attention backend serves a model on a device."""

from importlib import import_module
from importlib.util import find_spec
from typing import Literal, cast

import torch

from realrun.attention.backend import AttentionBackend
from realrun.attention.reference import ReferenceAttention
from realrun.kv_tensors import KVTensors
from realrun.model import PagedModel
from sim.core.errors import InputError

AttentionName = Literal["auto", "reference", "flashinfer"]


def build_attention(
    name: AttentionName, model: PagedModel, kv: KVTensors, device: torch.device
) -> AttentionBackend:
    """An attention backend for a model and its KV tensors.

    Args:
        name: `auto` is flashinfer on a CUDA device if the library is installed, else reference.
        model: the model it serves.
        kv: its KV tensors.
        device: where both are.

    Raises:
        InputError: the backend asked for cannot run here, or not this model.
    """
    if name == "reference" or (name == "auto" and not _has_flashinfer(device)):
        return ReferenceAttention(kv.layers[0], model.num_heads)
    if device.type != "cuda":
        raise InputError(f"attention flashinfer: needs a CUDA device, the model is on {device}")
    if find_spec("flashinfer") is None:
        raise InputError("attention flashinfer: not installed (servetwin's extra `gpu`)")
    # Only here: the library takes seconds to load, and is not there on most machines.
    backend = import_module("realrun.attention.flashinfer").FlashInferAttention(model, kv)
    return cast("AttentionBackend", backend)


def _has_flashinfer(device: torch.device) -> bool:
    return device.type == "cuda" and find_spec("flashinfer") is not None

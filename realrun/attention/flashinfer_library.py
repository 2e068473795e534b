"""Whether FlashInfer runs here."""

import os
from functools import cache
from importlib import import_module
from importlib.util import find_spec

import torch

from realrun.model.config import one_line
from sim.core.errors import say

# FlashInfer reads it when it is imported (flashinfer/norm/__init__.py, 0.6.14). Without it, where
# nvidia-cutlass-dsl is installed, norms are kernels of CuTe DSL. Those are compiled for each width
# when they are first used, and nobody has measured here how long the host launches them.
_CUDA_NORMS = "FLASHINFER_USE_CUDA_NORM"


def library_problem(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why FlashInfer cannot be used for tensors of a device and dtype, in a few words; or None."""
    if device.type != "cuda":
        return f"needs a CUDA device, but the model is on {device}"
    if dtype is not torch.bfloat16:
        return f"supports bfloat16, but the model is {str(dtype).removeprefix('torch.')}"
    return _import_problem()


@cache
def _import_problem() -> str | None:
    """Why the library cannot be imported. If it is installed and fails, this is said once."""
    if find_spec("flashinfer") is None:
        return "not installed (servetwin's extra `gpu`)"
    os.environ.setdefault(_CUDA_NORMS, "1")
    try:
        import_module("flashinfer")
    except Exception as error:  # it looks for compilers, drivers and other libraries
        problem = f"cannot be imported: {one_line(error)}"
        say(f"FlashInfer {problem}")
        return problem
    return None

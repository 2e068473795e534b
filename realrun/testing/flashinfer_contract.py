"""What FlashInfer's compiled functions take, read from the C++ that FlashInfer ships.

The wheel has the C++ from which modules are compiled, with the signature of each function. A call
is checked against it: the number and the types of its arguments. On which side a tensor must lie is
not part of a signature: a plan reads its lists on the host, and a run reads all on the device.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from realrun.testing.device_tensor import DeviceTensor
from realrun.testing.lazy_gpu import LazyGpu

_TYPES: dict[str, tuple[type, ...]] = {
    "TensorView": (Tensor,),
    "Tensor": (Tensor,),
    "int64_t": (int,),
    "bool": (bool,),
    "double": (float, int),
    "Array<int64_t>": (list,),
}
_HOST_LISTS = {"indptr", "qo_indptr", "kv_indptr", "kv_len_arr"}
_PINNED = "page_locked_int_workspace_buffer"
_DTYPE_ONLY = {"empty_q_data", "empty_kv_data"}
_LAST_DIM_CONTIGUOUS = {"q", "paged_k_cache", "paged_v_cache", "input", "residual", "weight", "k"}


class ContractError(Exception):
    """A call that FlashInfer would refuse, or that would make its kernels read wrong memory."""


class Parameter(NamedTuple):
    """One parameter of a compiled function, such as `int64_t batch_size`."""

    kind: str
    name: str

    @property
    def is_optional(self) -> bool:
        return self.kind.startswith("Optional<")

    @property
    def python_types(self) -> tuple[type, ...]:
        kind = self.kind.removeprefix("Optional<") if self.is_optional else self.kind
        kind = kind.removesuffix(">") if self.is_optional else kind
        return _TYPES[kind.replace("tvm::ffi::", "").replace("ffi::", "")]


def exported_functions(source: Path, additional: str = "") -> dict[str, list[Parameter]]:
    """The functions of a compiled module, by the name that Python calls them.

    Args:
        source: the C++ file with the exports.
        additional: C++ of the parameters that the variant adds to functions that run kernels.
    """
    text = source.read_text(encoding="utf-8").replace(" ADDITIONAL_FUNC_PARAMS", additional)
    found = {}
    for exported, name in re.findall(r"EXPORT_TYPED_FUNC\((\w+),\s*(\w+)\)", text):
        match = re.search(rf"\b{name}\(([^;{{]*?)\)\s*[;{{]", text)
        if match is not None:
            found[exported] = _parameters(match.group(1))
    return found


def check_call(
    gpu: LazyGpu, name: str, parameters: Sequence[Parameter], args: Any
) -> dict[str, Any]:
    """The arguments by their names.

    Raises:
        ContractError: they are not what the function takes.
    """
    if len(args) != len(parameters):
        raise ContractError(f"{name} takes {len(parameters)} arguments, got {len(args)}")
    for place, (parameter, value) in enumerate(zip(parameters, args, strict=True)):
        where = f"{name}: argument {place + 1}, {parameter.name}"
        if value is None and parameter.is_optional:
            continue
        if not isinstance(value, parameter.python_types):
            raise ContractError(f"{where}: takes {parameter.kind}, got {type(value).__name__}")
        if isinstance(value, Tensor):
            _check_tensor(gpu, where, parameter.name, value)
    return {each.name: value for each, value in zip(parameters, args, strict=True)}


def _check_tensor(gpu: LazyGpu, where: str, name: str, tensor: Tensor) -> None:
    is_host = name == _PINNED or (name in _HOST_LISTS and " plan" in where)
    if name not in _DTYPE_ONLY and is_host is isinstance(tensor, DeviceTensor):
        raise ContractError(f"{where}: must lie on the {'host' if is_host else 'device'}")
    if name == _PINNED and gpu.pinned(tensor) is None:
        raise ContractError(f"{where}: must be pinned")
    if "indptr" in name or name in {*_HOST_LISTS, "paged_kv_indices", "paged_kv_last_page_len"}:
        require(tensor.dtype is torch.int32, f"{where}: int32, got {tensor.dtype}")
        require(tensor.is_contiguous(), f"{where}: must be contiguous")
    if name in _LAST_DIM_CONTIGUOUS:
        require(tensor.stride(-1) == 1, f"{where}: its last dimension must be contiguous")


def require(condition: bool, message: str) -> None:
    """Raises ContractError unless the condition holds."""
    if not condition:
        raise ContractError(message)


def _parameters(text: str) -> list[Parameter]:
    text = re.sub(r"=[^,]*", "", text)
    pairs = [part.strip().rsplit(None, 1) for part in text.split(",") if part.strip()]
    return [Parameter(kind, name) for kind, name in pairs]

"""FlashInfer's compiled modules on a lazy GPU: their contracts, and what their kernels compute.

FlashInfer's Python is the real one. Only what it would compile is replaced: a plan is checked, and
written into the pinned buffer; a copy to the device is enqueued; a kernel reads the plan on the
device when it runs. A kernel that finds the plan of another batch there raises a `ContractError`.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from realrun.attention import flashinfer_library
from realrun.testing.device_tensor import DeviceTensor
from realrun.testing.flashinfer_contract import (
    ContractError,
    Parameter,
    check_call,
    exported_functions,
    require,
)
from realrun.testing.flashinfer_kernels import (
    Arguments,
    add_rms_norm,
    attend,
    rms_norm,
    rotate,
    silu_and_mul,
)
from realrun.testing.flashinfer_plans import (
    PlanShape,
    PlanSizes,
    decode_sizes,
    fa2_sizes,
    fa3_sizes,
)
from realrun.testing.lazy_gpu import LazyGpu

_NHD = 0
_HEAD_DIMS = (64, 128, 256)
_BINDINGS = {
    "decode": "batch_decode_jit_binding.cu",
    "fa2": "batch_prefill_jit_binding.cu",
    "fa3": "batch_prefill_sm90_jit_binding.cu",
}


class AttentionModule:
    """One compiled module: kernel `decode`, `fa2` or `fa3`, for one dtype and head width."""

    def __init__(
        self, gpu: LazyGpu, kernel: str, sources: Path, additional: str, dtype: torch.dtype
    ) -> None:
        self._gpu = gpu
        self._kernel = kernel
        self._dtype = dtype
        self._functions = exported_functions(sources / _BINDINGS[kernel], additional)

    def plan(self, *args: Any) -> list[int]:
        given = check_call(self._gpu, f"{self._kernel} plan", self._functions["plan"], args)
        sizes = self._sizes(given)
        room = given["float_workspace_buffer"].numel()
        require(sizes.float_bytes <= room, f"a plan needs {sizes.float_bytes} bytes of {room}")
        room = given["int_workspace_buffer"].numel()
        require(sizes.int_bytes <= room, f"a plan's lists need {sizes.int_bytes} bytes of {room}")
        pinned: Tensor = given["page_locked_int_workspace_buffer"]
        self._gpu.check_write(pinned)
        words = torch.cat((torch.tensor([sizes.num_blocks], dtype=torch.int32), *_offsets(given)))
        pinned[: 4 * len(words)].copy_(words.view(torch.uint8))
        num_bytes = max(4 * len(words), sizes.int_bytes)
        device: Tensor = given["int_workspace_buffer"].memory
        self._gpu.copy(device[:num_bytes], pinned[:num_bytes], "to device")
        return [sizes.num_blocks, sizes.tile_rows]

    def run(self, *args: Any) -> None:
        self._launch("run", args)

    def paged_run(self, *args: Any) -> None:
        self._launch("paged_run", args)

    def ragged_run(self, *args: Any) -> None:
        raise ContractError("the runner's keys and values are paged")

    def _sizes(self, given: Arguments) -> PlanSizes:
        is_decode = self._kernel == "decode"
        pages: list[int] = given["indptr" if is_decode else "kv_indptr"].diff().tolist()
        require(
            given["head_dim_qk"] in _HEAD_DIMS, f"no kernel for heads of {given['head_dim_qk']}"
        )
        require(given["batch_size"] == len(pages), "batch_size is not that of the offsets")
        require(given["window_left"] == -1, "the runner's models have no window")
        shape = PlanShape(
            num_heads=given["num_qo_heads"],
            num_kv_heads=given["num_kv_heads"],
            head_dim=given["head_dim_qk"],
            page_size=given["page_size"],
            num_sms=self._gpu.num_sms,
            is_graph=given["enable_cuda_graph"],
        )
        if is_decode:
            return decode_sizes(shape, pages)
        lens: list[int] = given["qo_indptr"].diff().tolist()
        kv_lens: list[int] = given["kv_len_arr"].tolist()
        require(given["total_num_rows"] >= sum(lens), "total_num_rows is less than the tokens")
        needed = [-(-length // shape.page_size) for length in kv_lens]
        require(needed == pages, "the lengths do not fit the pages")
        if self._kernel == "fa3":
            return fa3_sizes(shape, lens)
        return fa2_sizes(shape, lens, pages, given["total_num_rows"])

    def _launch(self, function: str, args: Any) -> None:
        name = f"{self._kernel} {function}"
        given = check_call(self._gpu, name, self._functions[function], args)
        q, keys, values, out = (given[key] for key in ("q", "paged_k_cache", "paged_v_cache", "o"))
        for tensor in (q, keys, values, out):
            require(tensor.dtype is self._dtype, f"{name}: compiled for {self._dtype}")
        require(
            out.shape == q.shape and out.is_contiguous(), f"{name}: kernels ignore out's strides"
        )
        require(keys.stride() == values.stride(), f"{name}: K and V must have the same strides")
        require(given.get("kv_layout_code", given.get("layout")) == _NHD, f"{name}: layout")
        memory = _memory(given)
        self._gpu.launch(name, lambda: attend(name, memory))


def _memory(given: Arguments) -> Arguments:
    return {
        key: value.memory if isinstance(value, DeviceTensor) else value
        for key, value in given.items()
    }


def _offsets(given: Arguments) -> list[Tensor]:
    if "indptr" in given:
        return [given["indptr"]]
    return [given["qo_indptr"], given["kv_indptr"]]


class SmallKernels:
    """The modules for norms, rotary positions and activations."""

    def __init__(self, gpu: LazyGpu, sources: Path) -> None:
        self._gpu = gpu
        self._functions = {
            **exported_functions(sources / "flashinfer_norm_binding.cu"),
            **exported_functions(sources / "flashinfer_rope_binding.cu"),
            # It has no source of its own: it is made from a template in `jit/activation.py`.
            "silu_and_mul": [
                Parameter("TensorView", "out"),
                Parameter("TensorView", "input"),
                Parameter("bool", "enable_pdl"),
            ],
        }

    def rmsnorm(self, *args: Any) -> None:
        self._launch("rmsnorm", args, rms_norm)

    def fused_add_rmsnorm(self, *args: Any) -> None:
        self._launch("fused_add_rmsnorm", args, add_rms_norm)

    def apply_rope_pos_ids_cos_sin_cache(self, *args: Any) -> None:
        given = self._launch("apply_rope_pos_ids_cos_sin_cache", args, rotate)
        require(given["pos_ids"].is_contiguous(), "positions must be contiguous")
        require(not given["interleave"], "the runner's models rotate halves")

    def silu_and_mul(self, *args: Any) -> None:
        given = self._launch("silu_and_mul", args, silu_and_mul)
        for name in ("out", "input"):
            require(given[name].is_contiguous(), f"silu_and_mul ignores the strides of {name}")

    def _launch(self, name: str, args: Any, kernel: Callable[[Arguments], None]) -> Arguments:
        given = check_call(self._gpu, name, self._functions[name], args)
        memory = _memory(given)
        self._gpu.launch(name, lambda: kernel(memory))
        return given


@contextmanager
def lazy_flashinfer(gpu: LazyGpu) -> Iterator[list[str]]:
    """A context in which FlashInfer's compiled modules are these; yields the names of those loaded.

    FlashInfer must be importable, and `lazy_cuda` must be active.
    """
    library = import_module("flashinfer")
    modules = import_module("flashinfer.jit.attention.modules")
    sources = Path(str(library.__file__)).parent / "data" / "csrc"
    loaded: list[str] = []

    def additional(*lists: Any) -> str:
        text: str = modules.generate_additional_params(*lists)[1]
        return text

    def loading(name: str, module: object) -> SimpleNamespace:
        def load() -> object:
            loaded.append(name)
            return module

        return SimpleNamespace(build_and_load=load)

    def prefill(backend: str, uri: str, dtype: torch.dtype, *others: Any, **_: Any) -> object:
        module = AttentionModule(gpu, backend, sources, additional(*others[5:9]), dtype)
        return loading(uri, module)

    def decode(uri: str, dtype: torch.dtype, *others: Any, **_: Any) -> object:
        module = AttentionModule(gpu, "decode", sources, additional(*others[5:9]), dtype)
        return loading(uri, module)

    small = SmallKernels(gpu, sources)
    _forget_modules()
    with ExitStack() as stack:
        for owner, name, value in (
            (modules, "gen_customize_batch_prefill_module", prefill),
            (modules, "gen_customize_batch_decode_module", decode),
            (import_module("flashinfer.norm"), "gen_norm_module", lambda: loading("norm", small)),
            (import_module("flashinfer.norm"), "_USE_CUDA_NORM", True),
            (import_module("flashinfer.rope"), "gen_rope_module", lambda: loading("rope", small)),
            (
                import_module("flashinfer.activation"),
                "gen_act_and_mul_module",
                lambda name: loading(f"{name}_and_mul", small),
            ),
        ):
            stack.enter_context(patch.object(owner, name, value))
        stack.callback(_forget_modules)
        yield loaded


def _forget_modules() -> None:
    """Empty FlashInfer's caches of modules, buffers and device properties."""
    flashinfer_library._import_problem.cache_clear()
    for module in ("prefill", "decode", "norm", "rope", "activation", "utils"):
        for value in vars(import_module(f"flashinfer.{module}")).values():
            if callable(getattr(value, "cache_clear", None)):
                value.cache_clear()
    import_module("flashinfer.utils")._cache_buf.clear()

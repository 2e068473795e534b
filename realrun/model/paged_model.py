"""A causal language model whose attention reads and writes KV pages."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from realrun.attention.backend import StepAttention
from realrun.attention.flashinfer_library import library_problem
from realrun.batches.plan_tensors import PlanTensors
from realrun.device.memory import find_device
from realrun.forward.flashinfer_kernels import FlashInferKernels
from realrun.forward.gpt2 import Gpt2Pass
from realrun.forward.kernels import Kernels, TorchKernels
from realrun.forward.layer_attention import PagedPass
from realrun.forward.llama import LlamaPass
from realrun.model.config import find_model, one_line
from realrun.model.weights import build_random, check_room, load_checkpoint
from sim.core.errors import InputError, unknown_name
from sim.latency.shapes import ModelShape

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


class PagedModel:
    """A model of transformers whose weights serve paged requests. Load one with `load_model`.

    Attributes:
        model: the transformers module, in inference mode: the owner of the weights.
        shape: its sizes, in the simulator's form; `shape.dtype_bytes` belongs to `dtype`.
        device: the device of its weights.
        dtype: the type of weights, activations and KV cache.
        max_positions: tokens of the longest request that it can serve.
        kernels: what computes norms, rotary embedding and activations of Llama-like models.
    """

    def __init__(
        self, model: PreTrainedModel, shape: ModelShape, max_positions: int, kernels: Kernels
    ) -> None:
        self.model = model
        self.shape = shape
        self.max_positions = max_positions
        self.kernels = kernels
        self._pass: Gpt2Pass | LlamaPass
        if model.config.model_type == "gpt2":
            self._pass = Gpt2Pass(model)
        else:
            self._pass = LlamaPass(model, kernels, max_positions)
        self._head: nn.Module = model.get_output_embeddings()
        weight = model.get_input_embeddings().weight
        self.device: torch.device = weight.device
        self.dtype: torch.dtype = weight.dtype

    @torch.inference_mode()
    def forward(
        self,
        token_ids: Tensor,
        inputs: PlanTensors,
        attention: StepAttention,
        kv_layers: Sequence[Tensor],
    ) -> Tensor:
        """Run one step. This enqueues work and waits for nothing.

        Args:
            token_ids: int64 [num_tokens], the new tokens of all rows, row by row.
            inputs: the step's plan on the device.
            attention: attention, planned for the same step.
            kv_layers: for each layer, its tensor of KV pages; gets the new tokens' K and V.

        Returns:
            Logits [num_samples, vocab_size].
        """
        hidden = self._pass.hidden(token_ids, PagedPass(inputs, attention, kv_layers))
        logits: Tensor = self._head(hidden)
        return logits


def load_model(
    name_or_path: str,
    *,
    device: str,
    dtype: str,
    seed: int = 0,
    base_dir: Path = Path(),
    use_flashinfer: bool = True,
) -> PagedModel:
    """Load a model onto a device.

    Args:
        name_or_path: a packaged model or a `.json` configuration, both with random weights; or a
            folder with config.json and weights.
        device: `cpu`, `cuda` or `cuda:N`.
        dtype: `bfloat16`, `float16` or `float32`.
        seed: seed of random weights.
        base_dir: the folder that a relative path starts from.
        use_flashinfer: whether to use FlashInfer's kernels if they run here, see
            `library_problem`.

    Raises:
        InputError: there is no such model, device or dtype; the architecture is not supported;
            weights are missing or unreadable; or there is too little memory.
    """
    if dtype not in DTYPES:
        raise InputError(f"dtype: {unknown_name('dtype', dtype, DTYPES)}")
    found = find_device(device)
    if found.type == "cuda":
        # Libraries allocate on the current device.
        torch.cuda.set_device(found)
    source = find_model(name_or_path, base_dir)
    itemsize = DTYPES[dtype].itemsize
    shape = replace(source.shape, dtype_bytes=itemsize, kv_element_bytes=itemsize)
    check_room(source.where, shape, found)
    if source.checkpoint is None:
        model = build_random(source, found, DTYPES[dtype], seed)
    else:
        model = load_checkpoint(source, found, DTYPES[dtype])
    _check_sizes(source.where, model, shape)
    kernels: Kernels = TorchKernels()
    if use_flashinfer and library_problem(found, DTYPES[dtype]) is None:
        kernels = FlashInferKernels()
    max_positions = int(source.config.max_position_embeddings)
    try:
        return PagedModel(model.eval(), shape, max_positions, kernels)
    except torch.OutOfMemoryError as error:
        raise InputError(f"{source.where}: {one_line(error)}") from None


def _check_sizes(where: str, model: PreTrainedModel, shape: ModelShape) -> None:
    """Refuse a configuration for which transformers and the simulator disagree on the sizes."""
    num_parameters = sum(weight.numel() for weight in model.parameters())
    if num_parameters != shape.num_parameters:
        raise InputError(
            f"{where}: config.json: transformers builds {num_parameters} parameters, but the sizes"
            f" in this file give {shape.num_parameters}: such models are not supported"
        )

"""A causal language model whose attention reads and writes pages."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from realrun.attention.backend import AttentionBackend
from realrun.device_memory import find_device
from realrun.hook import ATTENTION_NAME, PagedPass, register_paged_attention
from realrun.model_config import find_model
from realrun.plan_tensors import PlanTensors
from realrun.weights import build_random, load_checkpoint
from sim.core.errors import InputError
from sim.latency.shapes import ModelShape

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


class PagedModel:
    """A model that runs flat batches. Load one with `load_model`.

    Attributes:
        model: the transformers module, in inference mode, its attention replaced.
        shape: its sizes, as the simulator knows them; `dtype_bytes` is that of `dtype`.
        device: where its weights are.
        dtype: of weights, activations and KV cache.
        max_positions: longest request it takes, in tokens.
    """

    def __init__(self, model: nn.Module, shape: ModelShape, max_positions: int) -> None:
        self.model = model
        self.shape = shape
        self.max_positions = max_positions
        self._embedding: nn.Module = model.get_input_embeddings()
        self._layers: nn.Module = model.base_model
        self._head: nn.Module = model.get_output_embeddings()
        weight = self._embedding.weight
        self.device: torch.device = weight.device
        self.dtype: torch.dtype = weight.dtype

    @property
    def num_layers(self) -> int:
        return self.shape.num_layers

    @torch.inference_mode()
    def forward(
        self,
        token_ids: Tensor,
        inputs: PlanTensors,
        attention: AttentionBackend,
        kv_layers: Sequence[Tensor],
    ) -> Tensor:
        """Run one step. Enqueues work, waits for nothing.

        Args:
            token_ids: int64 [num_tokens], the rows' new tokens end to end.
            inputs: the step's plan on the device.
            attention: planned for the same step.
            kv_layers: the layers' tensors of pages; the new tokens' K and V are written there.

        Returns:
            Logits [num_samples, vocab_size].
        """
        hidden = self._layers(
            # Embeddings rather than ids: for ids GPT-2 looks for padding, which waits.
            inputs_embeds=self._embedding(token_ids.unsqueeze(0)),
            position_ids=inputs.positions.unsqueeze(0),
            use_cache=False,
            paged=PagedPass(inputs, attention, kv_layers),
        )[0]
        logits: Tensor = self._head(hidden[0].index_select(0, inputs.sample_tokens))
        return logits


def load_model(
    name_or_path: str, *, device: str, dtype: str, seed: int = 0, base_dir: Path = Path()
) -> PagedModel:
    raise NotImplementedError

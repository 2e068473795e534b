"""The forward pass of GPT-2: 12 launches a layer."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm

from realrun.forward.layer_attention import PagedPass, query_factor

_TANH_GELU = ("gelu_new", "gelu_pytorch_tanh")


class Gpt2Pass:
    """Runs a GPT-2 of transformers on paged KV, with that model's weights."""

    def __init__(self, model: Any) -> None:
        """`model` is a `GPT2LMHeadModel`; it keeps its weights."""
        self._model = model.transformer
        config = model.config
        self._shape = (-1, config.n_head, config.n_embd // config.n_head)
        self._factors = [
            query_factor(block.attn.scaling, self._shape[2]) for block in self._model.h
        ]
        self._has_tanh_gelu = config.activation_function in _TANH_GELU

    def hidden(self, token_ids: Tensor, paged: PagedPass) -> Tensor:
        """Hidden states of the tokens that sample, [num_samples, width]."""
        inputs = paged.inputs
        hidden: Tensor = self._model.wte(token_ids) + self._model.wpe(inputs.positions)
        for layer, block in enumerate(self._model.h):
            attended = self._attend(layer, block.attn, _norm(hidden, block.ln_1), paged)
            hidden.add_(_product(attended, block.attn.c_proj))
            hidden.add_(self._mlp(block.mlp, _norm(hidden, block.ln_2)))
        return _norm(hidden.index_select(0, inputs.sample_tokens), self._model.ln_f)

    def _attend(self, layer: int, attention: Any, rows: Tensor, paged: PagedPass) -> Tensor:
        packed = _product(rows, attention.c_attn)
        query, key, value = (part.view(self._shape) for part in packed.chunk(3, dim=-1))
        if self._factors[layer] != 1:
            query = query * self._factors[layer]
        return paged.attend(layer, query, key, value)

    def _mlp(self, mlp: Any, rows: Tensor) -> Tensor:
        wide = _product(rows, mlp.c_fc)
        activated = gelu(wide, approximate="tanh") if self._has_tanh_gelu else mlp.act(wide)
        return _product(activated, mlp.c_proj)


def _product(rows: Tensor, module: Any) -> Tensor:
    """A `Conv1D` of transformers: its weight is [width of the input, width of the output]."""
    return torch.addmm(module.bias, rows, module.weight)


def _norm(rows: Tensor, module: Any) -> Tensor:
    return layer_norm(rows, module.normalized_shape, module.weight, module.bias, module.eps)

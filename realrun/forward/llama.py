"""The forward pass of Llama, Qwen2 and Qwen3: 11 to 14 launches a layer.

In each layer, with the number of launches:

* residual += rows; rows = norm(residual): 1
* query, key and value = rows @ packed weights: 1
* norm of each query and key head, in Qwen3 only: 2
* rotary embedding: 1
* K and V into their pages: 2
* attention: 1 or 2
* rows = attended @ weights: 1
* residual += rows; rows = norm(residual): 1
* gate and up = rows @ packed weights; silu(gate) * up; @ weights: 3
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from realrun.forward.kernels import Kernels
from realrun.forward.layer_attention import PagedPass, query_factor


class _Packed:
    """Linear layers with the same input as one product. The layers keep views of the weights."""

    def __init__(self, layers: Sequence[Any]) -> None:
        self.sizes: list[int] = [layer.out_features for layer in layers]
        weights: list[nn.Parameter] = [layer.weight for layer in layers]
        biases: list[nn.Parameter] = [layer.bias for layer in layers if layer.bias is not None]
        self._weight = _pack(weights)
        self._bias = _pack(biases) if biases else None

    def __call__(self, rows: Tensor) -> Tensor:
        return linear(rows, self._weight, self._bias)


class _Layer:
    """The weights of one layer."""

    def __init__(self, module: Any, config: Any) -> None:
        attention, mlp = module.self_attn, module.mlp
        self.norms: tuple[Tensor, Tensor] = (
            module.input_layernorm.weight,
            module.post_attention_layernorm.weight,
        )
        self.query_key_value = _Packed((attention.q_proj, attention.k_proj, attention.v_proj))
        self.head_norms: tuple[Tensor, Tensor] | None = None
        if hasattr(attention, "q_norm"):
            self.head_norms = (attention.q_norm.weight, attention.k_norm.weight)
        self.query_factor = query_factor(attention.scaling, attention.head_dim)
        self.out: nn.Module = attention.o_proj
        self.gate_up = _Packed((mlp.gate_proj, mlp.up_proj))
        self.activation: nn.Module | None = None if config.hidden_act == "silu" else mlp.act_fn
        self.down: nn.Module = mlp.down_proj


class LlamaPass:
    """Runs a model of transformers on paged KV, with that model's weights."""

    def __init__(self, model: Any, kernels: Kernels, max_positions: int) -> None:
        """Pack the weights.

        Args:
            model: the model; its layers become views of the packed weights.
            kernels: what computes norms, rotary embedding and activations.
            max_positions: tokens of the longest request.
        """
        config = model.config
        self._kernels = kernels
        self._epsilon: float = config.rms_norm_eps
        self._head_dim: int = model.model.layers[0].self_attn.head_dim
        self._embedding: nn.Module = model.model.embed_tokens
        self._norm: Tensor = model.model.norm.weight
        self._cos_sin = _cos_sin(model.model.rotary_emb, max_positions)
        self._layers = [_Layer(module, config) for module in model.model.layers]

    def hidden(self, token_ids: Tensor, paged: PagedPass) -> Tensor:
        """Hidden states of the tokens that sample, [num_samples, width]."""
        kernels, epsilon = self._kernels, self._epsilon
        residual: Tensor = self._embedding(token_ids)
        rows = kernels.rms_norm(residual, self._layers[0].norms[0], epsilon)
        for number, layer in enumerate(self._layers):
            if number:
                kernels.add_rms_norm(rows, residual, layer.norms[0], epsilon)
            rows = self._attend(number, layer, rows, paged)
            kernels.add_rms_norm(rows, residual, layer.norms[1], epsilon)
            rows = self._mlp(layer, rows)
        kernels.add_rms_norm(rows, residual, self._norm, epsilon)
        return rows.index_select(0, paged.inputs.sample_tokens)

    def _attend(self, number: int, layer: _Layer, rows: Tensor, paged: PagedPass) -> Tensor:
        heads = (len(rows), -1, self._head_dim)
        packed = torch.split(layer.query_key_value(rows), layer.query_key_value.sizes, dim=-1)
        query, key, value = (part.view(heads) for part in packed)
        if layer.head_norms is not None:
            query = self._kernels.rms_norm(query, layer.head_norms[0], self._epsilon)
            key = self._kernels.rms_norm(key, layer.head_norms[1], self._epsilon)
        self._kernels.rotate(query, key, paged.inputs.positions, self._cos_sin)
        if layer.query_factor != 1:
            query = query * layer.query_factor
        attended: Tensor = layer.out(paged.attend(number, query, key, value))
        return attended

    def _mlp(self, layer: _Layer, rows: Tensor) -> Tensor:
        wide = layer.gate_up(rows)
        if layer.activation is None:
            activated = self._kernels.silu_and_mul(wide)
        else:
            gate, up = wide.chunk(2, dim=-1)
            activated = layer.activation(gate) * up
        result: Tensor = layer.down(activated)
        return result


@torch.inference_mode(mode=False)
def _pack(parameters: Sequence[nn.Parameter]) -> Tensor:
    """Concatenate the rows of parameters, which become views of the result."""
    packed = torch.cat([parameter.data for parameter in parameters])
    parts = torch.split(packed, [len(parameter) for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.data = part
    return packed


def _cos_sin(rotary: Any, max_positions: int) -> Tensor:
    """Cosines, then sines, for each position; float32 [max_positions, head_dim]."""
    frequencies: Tensor = rotary.inv_freq.float()
    positions = torch.arange(max_positions, dtype=torch.float32, device=frequencies.device)
    angles = torch.outer(positions, frequencies)
    return torch.cat((angles.cos(), angles.sin()), dim=-1) * float(rotary.attention_scaling)

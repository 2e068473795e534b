"""The groups of layers of a model, and the size of their pool.

vLLM 0.19.0 and 0.33.0: `_get_kv_cache_groups_uniform_page_size` and
`get_kv_cache_config_from_groups` (v1/core/kv_cache_utils.py, from 0.33.0 on kv_cache_planning.py).
"""

from typing import TYPE_CHECKING

from sim.core.errors import InputError
from sim.vllm.cache.kv_cache_spec import CHUNKED, FULL, WINDOW, KVCacheSpec

if TYPE_CHECKING:
    from sim.latency.shapes import Attention, ModelShape

_KEY = ("scheduler", "kv_cache_groups")


def groups_of_model(model: "ModelShape") -> list[KVCacheSpec]:
    """The groups into which a model's layers fall, all with equally many layers.

    Example: 10 layers with full attention and 52 with windows make one group of 10 and six groups
    of at most 10.

    Raises:
        InputError: layers keep states, or different amounts of KV.
    """
    counts = _layer_counts(model)
    size = _layers_of_group(counts)
    return [group for group, count in counts.items() for _ in range(-(-count // size))]


def block_bytes(model: "ModelShape", tp: int, block_size: int) -> int:
    """Bytes of a block on each of `tp` GPUs: the KV of its tokens in all layers of a group.

    Raises:
        InputError: layers keep states, or different amounts of KV.
    """
    element_bytes = model.kv_element_bytes
    of_layers = {layer.attention.kv_bytes(element_bytes, tp) for layer in model.layers}
    num_layers = _layers_of_group(_layer_counts(model))
    return num_layers * block_size * max(of_layers)


def _layer_counts(model: "ModelShape") -> dict[KVCacheSpec, int]:
    """How many layers keep what."""
    if any(layer.attention.state_bytes for layer in model.layers):
        reason = f"{model.name} has layers with states: give the groups as a list"
        raise InputError(f"model does not do: {reason}", key=_KEY)
    if len({layer.attention.kv_bytes(model.kv_element_bytes, 1) for layer in model.layers}) > 1:
        reason = f"layers of {model.name} keep different amounts of KV: give the groups as a list"
        raise InputError(f"model does not do: {reason}", key=_KEY)
    counts: dict[KVCacheSpec, int] = {}
    for layer in model.layers:
        group = _group_of(layer.attention)
        counts[group] = counts.get(group, 0) + layer.count
    return counts


def _group_of(attention: "Attention") -> KVCacheSpec:
    if attention.window is None:
        return KVCacheSpec(FULL)
    return KVCacheSpec(CHUNKED if attention.is_chunked else WINDOW, attention.window)


def _layers_of_group(counts: dict[KVCacheSpec, int]) -> int:
    """As many as the rarest kind of layer has, or the most common one if it has hardly more."""
    fewest, most = min(counts.values()), max(counts.values())
    return most if most < fewest * 1.5 else fewest

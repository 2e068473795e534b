"""How a GPU's memory is shared out between the pool of layers with windows and the other one.

SGLang 0.5.23: `HybridSWAPoolConfigurator` and `SWARequestCapPoolConfigurator` of
model_executor/pool_configurator.py.
"""

from typing import TYPE_CHECKING

from sim.core.errors import InputError
from sim.sglang.section.window import KEY, has_window_pool, most_in_windows, window_of_model

if TYPE_CHECKING:
    from sim.family.section import GpuRoom
    from sim.latency.shapes import ModelShape
    from sim.sglang.section.keys import SglangKeys


def tokens_beside_windows(
    section: "SglangKeys", model: "ModelShape | None", room: "GpuRoom"
) -> int | None:
    """KV tokens of the main pool; None: there is one pool, or nothing is known of its layers.

    Raises:
        InputError: the window pool leaves no room.
    """
    if section.sliding_window is None or section.disable_hybrid_swa_memory:
        return None
    if model is None or not has_window_pool(model) or room.num_stages > 1 or room.num_bytes <= 0:
        return None
    window_bytes = sum(
        layer.count * layer.attention.kv_bytes(model.kv_element_bytes, room.tp)
        for layer in model.layers
        if layer.attention.window is not None
    )
    other_bytes = model.kv_bytes_on_gpu(room.tp) - window_bytes
    window = section.sliding_window
    most = most_in_windows(section, window_of_model(model) if window == "model" else window)
    if most is None:
        return int(room.num_bytes // (other_bytes + section.swa_full_tokens_ratio * window_bytes))
    left = room.num_bytes - most * window_bytes
    if left <= 0:
        reason = f"the {most} tokens that all requests have in windows leave no room for other KV"
        raise InputError(reason, key=("scheduler", KEY))
    return int(left // other_bytes)

"""Which layers look back over a limited number of tokens only."""

from sim.latency.architectures.values import ConfigValues

# The windows of a model that names no layers, by architecture: every layer but each n-th.
_FULL_EVERY = {"gemma2": 2, "gpt_oss": 2, "gemma3": 6, "gemma3_text": 6, "llama4_text": 4}
_WINDOWED = ("sliding_attention", "chunked_attention")
_WINDOW_KEYS = {"llama4_text": "attention_chunk_size"}
# The architectures whose windows are chunks.
CHUNKED = ("llama4_text",)


def windows(values: ConfigValues, num_layers: int) -> list[int | None]:
    """For each layer, how many tokens a query sees; None: all."""
    key = _WINDOW_KEYS.get(values.model_type, "sliding_window")
    if values.value(key) is None or not values.flag("use_sliding_window", default=True):
        return [None] * num_layers
    window = values.count(key)
    if window >= values.count("max_position_embeddings", default=1 << 40):
        return [None] * num_layers
    return [window if windowed else None for windowed in _windowed(values, num_layers)]


def _windowed(values: ConfigValues, num_layers: int) -> list[bool]:
    kinds = values.names("layer_types", num_layers)
    if kinds is not None:
        return [kind in _WINDOWED for kind in kinds]
    if values.value("use_sliding_window"):
        # Qwen: the first layers see everything.
        first = values.number("max_window_layers")
        return [layer >= first for layer in range(num_layers)]
    # Without any such rule, every layer has a window.
    every = values.count(
        "sliding_window_pattern", default=_FULL_EVERY.get(values.model_type, 1 << 40)
    )
    return [(layer + 1) % every != 0 for layer in range(num_layers)]

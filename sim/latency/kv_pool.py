"""How many KV tokens fit into a GPU's memory beside a model's weights."""

from collections.abc import Sequence

from sim.latency.shapes import ModelShape


def weight_bytes_on_gpu(shape: ModelShape, tp: int) -> int:
    """Bytes of weights on each of `tp` GPUs, which share every matrix."""
    return -(-shape.weight_bytes // tp)


def pool_tokens(
    shape: ModelShape,
    budget_bytes: int,
    tp: int,
    *,
    max_rows: int,
    window_share: float | None = None,
    layers: Sequence[int] = (),
) -> int:
    """KV tokens for which a GPU has room; negative if even the weights do not fit.

    Layers with a window keep less. Without `window_share` each sequence keeps at most a window in
    them, as vLLM's hybrid KV cache manager frees older blocks; there are `max_rows` at a time.

    In a pipeline, the stage that has room for the fewest tokens decides (vLLM 0.19.0:
    `get_kv_cache_configs` in v1/core/kv_cache_utils.py; SGLang 0.5.23:
    mem_cache/kv_cache_configurator.py). Each stage has its layers, taken as layers of average size.
    The first has the embedding, too, and the last the output head.

    Args:
        shape: the model.
        budget_bytes: for weights and KV on each GPU.
        tp: GPUs that share the model, or a stage.
        max_rows: sequences at a time, each with a state in layers of linear attention.
        window_share: tokens of a pool for layers with windows, as a share of those of the other
            layers' pool (SGLang's `swa_full_tokens_ratio`).
        layers: layers of each stage; empty: there is no pipeline.
    """
    if not layers:
        room = budget_bytes - weight_bytes_on_gpu(shape, tp)
        return _tokens(shape, room, tp, max_rows, window_share)
    embedding = shape.vocab_size * shape.hidden_size * shape.dtype_bytes
    head = shape.head.num_bytes(shape.dtype_bytes)
    in_layers = shape.weight_bytes - embedding - (0 if shape.tie_word_embeddings else head)
    tokens = []
    for stage, num_layers in enumerate(layers):
        weights = in_layers * num_layers // shape.num_layers
        weights += embedding * (stage == 0) + head * (stage == len(layers) - 1)
        # The room that all layers would need for as many tokens.
        room = (budget_bytes - -(-weights // tp)) * shape.num_layers // num_layers
        tokens.append(_tokens(shape, room, tp, max_rows, window_share))
    return min(tokens)


def _tokens(
    shape: ModelShape, room: int, tp: int, max_rows: int, window_share: float | None
) -> int:
    """KV tokens of all layers for which there are `room` bytes."""
    room -= max_rows * -(-shape.state_bytes // tp)
    element_bytes, everywhere = shape.kv_element_bytes, shape.kv_bytes_on_gpu(tp)
    windowed = [
        (layer.attention.window, layer.count * layer.attention.kv_bytes(element_bytes, tp))
        for layer in shape.layers
        if layer.attention.window is not None
    ]
    unlimited = everywhere - sum(num_bytes for _, num_bytes in windowed)
    if not windowed or not unlimited or room <= 0:
        return room // everywhere
    if window_share is not None:
        return int(room // (unlimited + window_share * (everywhere - unlimited)))
    kept = max_rows * sum(window * num_bytes for window, num_bytes in windowed)
    return max(room // everywhere, (room - kept) // unlimited)

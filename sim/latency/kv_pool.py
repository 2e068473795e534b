"""How many KV tokens fit into a GPU's memory beside a model's weights."""

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
) -> int:
    """KV tokens for which a GPU has room; negative if even the weights do not fit.

    Layers with a window keep less. Without `window_share` each sequence keeps at most a window in
    them, as vLLM's hybrid KV cache manager frees older blocks; there are `max_rows` at a time.

    Args:
        shape: the model.
        budget_bytes: for weights and KV on each GPU.
        tp: GPUs that share the model.
        max_rows: sequences at a time, each with a state in layers of linear attention.
        window_share: tokens of a pool for layers with windows, as a share of those of the other
            layers' pool (SGLang's `swa_full_tokens_ratio`).
    """
    states = max_rows * -(-shape.state_bytes // tp)
    room = budget_bytes - weight_bytes_on_gpu(shape, tp) - states
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

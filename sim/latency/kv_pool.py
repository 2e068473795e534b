"""How many KV tokens fit into a GPU's memory beside a model's weights."""

from sim.latency.shapes import ModelShape

_LOGIT_BYTES = 4


def weight_bytes_on_gpu(shape: ModelShape, tp: int, *, dp: int = 1) -> int:
    """Bytes of weights on each GPU.

    Args:
        shape: the model.
        tp: GPUs of a rank, which share every matrix.
        dp: ranks, which share the experts; each has all other weights.
    """
    experts = shape.expert_bytes
    return -(-(shape.weight_bytes - experts) // tp) + -(-experts // (tp * dp))


def activation_bytes(shape: ModelShape, num_tokens: int, max_rows: int, tp: int) -> int:
    """Bytes of the tensors that live at a time in the largest step, on each of `tp` GPUs.

    vLLM 0.19 keeps this room free: it runs such a step when it starts (`profile_run` of
    `gpu_model_runner.py`). Beside hidden states there are the inner tensors of an MLP, or those of
    the experts (`fused_moe.py`: gate and up, or what goes back; and what is between). After the
    last layer there are the logits of all rows.
    """
    hidden, width = shape.hidden_size, 3 * shape.intermediate_size // tp
    for layer in shape.layers:
        if (experts := layer.experts) is not None:
            inner = experts.matrices.num_parameters // (3 * hidden) // tp
            width = max(width, experts.num_active * (max(2 * inner, hidden) + inner))
    in_layer = num_tokens * (3 * hidden + width) * shape.dtype_bytes
    return max(in_layer, max_rows * shape.vocab_size * (_LOGIT_BYTES + shape.dtype_bytes))


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

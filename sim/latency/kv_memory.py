"""How much memory KV takes: tokens that fit into a GPU, and the bytes of a request."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sim.latency.shapes import ModelShape

_LOGIT_BYTES = 4


def weight_bytes_on_gpu(shape: "ModelShape", tp: int, *, dp: int = 1) -> int:
    """Bytes of weights on each of the `tp` GPUs of a rank, which share every matrix.

    `dp` ranks share the experts; each has all other weights.
    """
    experts = shape.expert_bytes
    return -(-(shape.weight_bytes - experts) // tp) + -(-experts // (tp * dp))


def stage_weight_bytes(shape: "ModelShape", tp: int, layers: Sequence[int]) -> list[int]:
    """Bytes of weights on each of the `tp` GPUs of each stage.

    A stage has its layers, taken as layers of average size. The first has the embedding, too, and
    the last the output head, also if both are the same matrix.
    """
    embedding = shape.vocab_size * shape.hidden_size * shape.dtype_bytes
    head = shape.head.num_bytes(shape.dtype_bytes)
    in_layers = shape.weight_bytes - embedding - (0 if shape.tie_word_embeddings else head)
    weights = [in_layers * num_layers // shape.num_layers for num_layers in layers]
    weights[0] += embedding
    weights[-1] += head
    return [-(-num_bytes // tp) for num_bytes in weights]


def activation_bytes(shape: "ModelShape", num_tokens: int, max_rows: int, tp: int) -> int:
    """Bytes of the activations that are in memory at once in the largest step, on each GPU.

    vLLM 0.19 keeps this memory free: it runs such a step when it starts (`profile_run` of
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
    shape: "ModelShape",
    budget_bytes: int,
    tp: int,
    *,
    max_rows: int,
    window_share: float | None = None,
    layers: Sequence[int] = (),
) -> int:
    """KV tokens that fit into a GPU; negative if even the weights do not fit.

    Args:
        shape: the model.
        budget_bytes: for weights and KV on each of the `tp` GPUs of the model, or of a stage.
        tp: GPUs that share every matrix.
        max_rows: sequences that run at a time. Each has a state in layers of linear attention.
        window_share: tokens of the pool of layers with windows, as a share of the other layers'
            pool (SGLang's `swa_full_tokens_ratio`). None: each sequence keeps at most a window in
            these layers, as vLLM's hybrid KV cache manager frees older blocks.
        layers: in a pipeline, the number of layers of each stage. The stage into which the fewest
            tokens fit decides (vLLM 0.19.0: `get_kv_cache_configs` in v1/core/kv_cache_utils.py;
            SGLang 0.5.23: mem_cache/kv_cache_configurator.py).
    """
    if not layers:
        free_bytes = budget_bytes - weight_bytes_on_gpu(shape, tp)
        return _tokens(shape, free_bytes, tp, max_rows, window_share)
    tokens = []
    for weights, num_layers in zip(stage_weight_bytes(shape, tp, layers), layers, strict=True):
        # What all layers would need for as many tokens.
        free_bytes = (budget_bytes - weights) * shape.num_layers // num_layers
        tokens.append(_tokens(shape, free_bytes, tp, max_rows, window_share))
    return min(tokens)


def _tokens(
    shape: "ModelShape", free_bytes: int, tp: int, max_rows: int, window_share: float | None
) -> int:
    """KV tokens of all layers that fit into the free bytes."""
    free_bytes -= max_rows * -(-shape.state_bytes // tp)
    element_bytes, everywhere = shape.kv_element_bytes, shape.kv_bytes_on_gpu(tp)
    windowed = [
        (layer.attention.window, layer.count * layer.attention.kv_bytes(element_bytes, tp))
        for layer in shape.layers
        if layer.attention.window is not None
    ]
    unlimited = everywhere - sum(num_bytes for _, num_bytes in windowed)
    if not windowed or not unlimited or free_bytes <= 0:
        return free_bytes // everywhere
    if window_share is not None:
        return int(free_bytes // (unlimited + window_share * (everywhere - unlimited)))
    kept = max_rows * sum(window * num_bytes for window, num_bytes in windowed)
    return max(free_bytes // everywhere, (free_bytes - kept) // unlimited)


class KvBytes(NamedTuple):
    """Bytes that all GPUs of a receiving rank get together.

    Attributes:
        per_token: in layers without a window.
        per_request: states of linear attention, however long the prompt.
        windows: windows in tokens, with the bytes of a token in all layers that have this one. No
            more tokens of the prompt are sent than the window has.
    """

    per_token: int
    per_request: int = 0
    windows: tuple[tuple[int, int], ...] = ()


def kv_bytes(shape: "ModelShape", tp: int) -> KvBytes:
    """The bytes of a model's KV on its way to a rank of `tp` GPUs.

    Each GPU of the receiver gets what it keeps. With latent attention that is all of a token, and
    with more GPUs than KV heads it is a head that others have, too: such bytes are sent several
    times, as in SGLang 0.5.23 (`_resolve_rank_mapping` of `disaggregation/common/conn.py`, from
    line 1432) and vLLM 0.33.0 (`v1/nixl/tp_mapping.py` of `kv_connector`, from line 93).
    """
    per_token, windows = 0, dict[int, int]()
    for layer in shape.layers:
        attention = layer.attention
        num_bytes = layer.count * attention.kv_bytes(shape.kv_element_bytes, tp) * tp
        if attention.window is None:
            per_token += num_bytes
        elif num_bytes:
            windows[attention.window] = windows.get(attention.window, 0) + num_bytes
    return KvBytes(per_token, -(-shape.state_bytes // tp) * tp, tuple(sorted(windows.items())))

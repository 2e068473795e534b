"""KV tokens that fit beside a model's weights."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.latency.architectures.model_key import load_model_shape
from sim.latency.kv_memory import activation_bytes, pool_tokens, weight_bytes_on_gpu

GIB = 2**30


def shape(name):
    return load_model_shape(name, Path())


@pytest.mark.parametrize(
    ("name", "tp"), [("llama-3.1-8b", 1), ("llama-3.1-70b", 8), ("deepseek-ai/DeepSeek-V3", 16)]
)
def test_pool_fills_the_memory(name, tp):
    """One token more would not fit on a GPU."""
    model, budget = shape(name), 100 * GIB
    tokens = pool_tokens(model, budget, tp, max_rows=64)
    room = budget - weight_bytes_on_gpu(model, tp)
    assert 0 <= room - tokens * model.kv_bytes_on_gpu(tp) < model.kv_bytes_on_gpu(tp)


def test_weights_of_ranks_share_only_the_experts():
    """Two ranks of two GPUs: a quarter of the experts and half of all other weights on each."""
    model = shape("Qwen/Qwen3-30B-A3B")
    others = model.weight_bytes - model.expert_bytes
    assert model.expert_bytes > 0.9 * model.weight_bytes
    assert weight_bytes_on_gpu(model, 2, dp=2) == others // 2 + model.expert_bytes // 4
    assert weight_bytes_on_gpu(model, 4) == model.weight_bytes // 4


@pytest.mark.parametrize(
    ("name", "tp", "num_tokens", "widths"),
    [
        # 3 hidden states, and gate, up and their product.
        ("llama-3.1-8b", 1, 8_192, 3 * 4_096 + 3 * 14_336),
        # 8 experts for each token: what goes back to the residual stream, and what is inside.
        ("Qwen/Qwen3-30B-A3B", 1, 8_192, 3 * 2_048 + 8 * (2_048 + 768)),
    ],
)
def test_activations_are_those_of_the_widest_layer(name, tp, num_tokens, widths):
    """In 16 bits; a small step has room for its logits."""
    model = shape(name)
    assert activation_bytes(model, num_tokens, 1, tp) == 2 * num_tokens * widths
    assert activation_bytes(model, 1, 256, tp) == 256 * model.vocab_size * 6


def test_pool_is_negative_if_weights_do_not_fit():
    """The caller says which key leaves too little."""
    assert pool_tokens(shape("llama-3.1-70b"), 80 * GIB, 1, max_rows=1) < 0


@given(max_rows=st.integers(1, 2_000), gib=st.integers(10, 60))
def test_pool_with_windows_keeps_no_more_than_each_sequence_can_use(max_rows, gib):
    """All layers keep short sequences; longer ones leave only a window in half of the layers."""
    model = shape("openai/gpt-oss-20b")
    tokens = pool_tokens(model, gib * GIB, 1, max_rows=max_rows)
    room = gib * GIB - model.weight_bytes
    if room < 0:
        assert tokens < 0
        return
    half = model.kv_bytes_per_token // 2
    used = tokens * half + min(tokens, max_rows * 128) * half
    assert used <= room < used + 2 * 2 * half


def test_pool_with_windows_of_sglang_has_a_second_pool():
    """full = room / (F + 0.8 S), as SGLang's `set_num_tokens_hybrid_swa`."""
    model, budget = shape("openai/gpt-oss-120b"), 70 * GIB
    tokens = pool_tokens(model, budget, 1, max_rows=64, window_share=0.8)
    assert tokens == int((budget - model.weight_bytes) // (36_864 * 1.8))


def test_pool_leaves_room_for_states():
    """Each sequence has one in the layers of linear attention."""
    model, budget = shape("Qwen/Qwen3.5-27B"), 100 * GIB
    few, many = (pool_tokens(model, budget, 1, max_rows=rows) for rows in (10, 110))
    assert few - many == pytest.approx(100 * model.state_bytes / model.kv_bytes_per_token, abs=1)


def test_pool_of_a_pipeline_is_that_of_its_fullest_stage():
    """Half of the layers on each GPU: half of the weights and of each token's KV.

    The first stage has the embedding, too, and the last the output head: 2 x 128,256 x 4,096 bytes.
    """
    model, budget, end = shape("llama-3.1-8b"), 40 * GIB, 2 * 128_256 * 4_096
    halves = pool_tokens(model, budget, 1, max_rows=64, layers=(16, 16))
    weights = (model.weight_bytes - 2 * end) // 2 + end
    assert halves == pytest.approx((budget - weights) / (model.kv_bytes_per_token / 2), abs=1)
    assert pool_tokens(model, budget, 1, max_rows=64, layers=(15, 17)) < halves
    whole = pool_tokens(model, budget, 1, max_rows=64)
    assert pool_tokens(model, budget, 1, max_rows=64, layers=(32,)) == whole

"""Which operators a step of a model consists of."""

from pathlib import Path

import pytest

from sim.core.errors import InputError
from sim.latency.aiconfigurator.operators import (
    AllReduceOperator,
    AttentionOperator,
    Elementwise,
    EmbeddingLookup,
    MatrixProduct,
    step_operators,
)
from sim.latency.shape_files import load_model_shape, model_table


def shape(name):
    return load_model_shape(name, Path())


def parameters(operators):
    products = [operator for operator in operators if isinstance(operator, MatrixProduct)]
    return sum(product.repeats * product.width_out * product.width_in for product in products)


@pytest.mark.parametrize("name", sorted(model_table()))
def test_operators_products_are_the_models_matrices(name):
    """One device multiplies every token with all layers' matrices, and a row with the head."""
    model = shape(name)
    operators = step_operators(model, 1)
    assert parameters(operators.tokens) == model.num_layer_matrix_parameters
    assert parameters(operators.head) == model.num_head_parameters


def test_operators_llama_has_the_published_widths():
    """Llama-3.1-8B, worked out from its config.json."""
    operators = step_operators(shape("llama-3.1-8b"), 1)
    assert operators.tokens == (
        EmbeddingLookup("embedding", 128_256, 4_096),
        MatrixProduct("query, key and value", 32, 6_144, 4_096),
        MatrixProduct("attention output", 32, 4_096, 4_096),
        MatrixProduct("MLP up", 32, 28_672, 4_096),
        MatrixProduct("MLP down", 32, 4_096, 14_336),
        Elementwise("norms", 64, 8_192, 8_192),
        Elementwise("activation", 32, 28_672, 14_336),
    )
    assert operators.head == (MatrixProduct("output head", 1, 128_256, 4_096),)
    assert operators.attention == AttentionOperator(32, 32, 8, 128)


def test_operators_plain_mlp_goes_up_once():
    """GPT-2's MLP has no gate: two matrices, and an activation as wide as its input."""
    tokens = step_operators(shape("gpt2"), 1).tokens
    assert MatrixProduct("MLP up", 12, 3_072, 768) in tokens
    assert Elementwise("activation", 12, 3_072, 3_072) in tokens


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_operators_split_model_sums_over_the_devices(tp):
    """Each device has its share of every matrix; two sums a layer and one of the embedding."""
    model = shape("llama-3.1-70b")
    operators = step_operators(model, tp)
    assert parameters(operators.tokens) * tp == model.num_layer_matrix_parameters
    assert parameters(operators.head) * tp == model.num_head_parameters
    assert operators.attention == AttentionOperator(80, 64 // tp, 8 // tp, 128)
    assert operators.tokens[-1] == AllReduceOperator("all-reduce", 161, 8_192, tp)


def test_operators_more_devices_than_kv_heads_repeat_them():
    """Qwen2.5-7B has four KV heads: on four devices one each, and never less than one."""
    assert step_operators(shape("qwen2.5-7b"), 4).attention == AttentionOperator(28, 7, 1, 128)
    two_kv_heads = shape("tiny")
    assert step_operators(two_kv_heads, 4).attention == AttentionOperator(4, 1, 1, 64)


def test_operators_model_that_does_not_divide_is_bad_input():
    """The message names the number that does not."""
    with pytest.raises(InputError, match=r"latency.tp: 12 heads of gpt2 are not divisible by 8"):
        step_operators(shape("gpt2"), 8)

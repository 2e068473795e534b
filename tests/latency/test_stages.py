"""The stages of a pipeline: their layers, and their shares of a step's time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.errors import InputError
from sim.latency.wrappers import StagedLatency, spare_layers_first, spare_layers_last
from tests.latency.test_roofline import roofline
from tests.support.latency_steps import decode_step, extend_step

STEPS = (decode_step(8, 4_000), extend_step((0, 2_000)))


@pytest.mark.parametrize(
    ("split", "layers"),
    [
        (spare_layers_first, {(8, 4): [2, 2, 2, 2], (10, 4): [2, 3, 3, 2], (9, 2): [5, 4]}),
        (spare_layers_last, {(8, 4): [2, 2, 2, 2], (10, 4): [2, 2, 3, 3], (9, 2): [4, 5]}),
    ],
)
def test_layers_left_over_go_where_the_engine_puts_them(split, layers):
    """vLLM spares the last stage, which has the head; SGLang fills stages from the back."""
    assert {sizes: split(*sizes) for sizes in layers} == layers
    with pytest.raises(InputError, match="5 stages are more than the model's 4 layers"):
        split(4, 5)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.sampled_from(STEPS))
def test_times_of_the_stages_add_up_to_the_step(layers, step):
    """To the nanosecond; the last stage has the output head beside its layers."""
    model = roofline("llama-3.1-8b")
    device_ns = model.step_ns(step).device_ns
    stages_ns = StagedLatency(model, model, layers).stages_ns(step, device_ns)
    assert sum(stages_ns) == device_ns
    head_ns = model.head_ns(step)
    of_layer_ns = (device_ns - head_ns) / sum(layers)
    wanted = [num * of_layer_ns for num in layers]
    wanted[-1] += head_ns
    assert stages_ns == pytest.approx(wanted, abs=1)


def test_roofline_of_a_pipeline_adds_what_stages_send_to_each_other():
    """16 bits a token and unit of width, over NVLink, between four stages three times."""
    whole, staged = (roofline("llama-3.1-8b", pp=pp).step_ns(STEPS[1]).device_ns for pp in (1, 4))
    assert staged - whole == pytest.approx(3 * 2_000 * 2 * 4_096 / 450e9 * 1e9, abs=2)

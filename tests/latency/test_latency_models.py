"""What every latency model guarantees, and the sums of the linear model."""

from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.batch import ForwardMode
from sim.latency.architectures.model_key import load_model_shape
from sim.latency.config import RooflineLatencyConfig
from sim.latency.features import StepFeatures
from sim.latency.hardware import load_hardware
from sim.latency.kinds.linear import LinearLatency
from sim.latency.kinds.roofline import RooflineLatency
from tests.support.latency_steps import decode_step

MODELS = ("tiny", "llama-3.1-70b", "openai/gpt-oss-20b", "zai-org/GLM-5", "Qwen/Qwen3.5-27B")
seconds = st.floats(min_value=0, max_value=60) | st.floats(min_value=0, max_value=1e-3)
shares = st.floats(min_value=1e-3, max_value=1)
linear_models = st.builds(
    LinearLatency,
    step_s=seconds,
    per_prefill_token_s=seconds,
    per_decode_request_s=seconds,
    per_context_token_s=seconds,
    host_s=seconds,
)
roofline_models = st.builds(
    RooflineLatency,
    st.sampled_from([load_model_shape(name, Path()) for name in MODELS]),
    st.sampled_from([load_hardware("h200-sxm"), load_hardware("rtx-4090")]),
    st.builds(
        RooflineLatencyConfig,
        kind=st.just("roofline"),
        mfu=shares,
        bandwidth_efficiency=shares,
        step_overhead_s=seconds,
        host_s=seconds,
    ),
)
decode_steps = st.integers(1, 2_000).flatmap(
    lambda rows: st.builds(decode_step, st.just(rows), st.integers(rows, 10_000_000))
)


@given(model=linear_models | roofline_models, first=decode_steps, num_steps=st.integers(1, 300))
def test_decode_run_any_model_equals_single_steps(model, first, num_steps):
    """A run of steps and its steps one by one agree to the bit."""
    device_ns, host_ns = model.decode_run_ns(first, num_steps)
    model.consume(first, num_steps)
    steps = accumulate(range(num_steps - 1), lambda step, _: step.next_decode(), initial=first)
    single = [model.step_ns(step) for step in steps]
    assert device_ns.dtype == host_ns.dtype == np.int64
    assert list(zip(device_ns.tolist(), host_ns.tolist(), strict=True)) == single


@given(model=linear_models | roofline_models, step=decode_steps)
def test_step_any_model_is_whole_and_positive(model, step):
    """Times are Python ints; the device always takes at least a nanosecond."""
    device_ns, host_ns = model.step_ns(step)
    assert type(device_ns) is int
    assert type(host_ns) is int
    assert device_ns >= 1
    assert host_ns >= 0


@given(
    coefficients=st.tuples(seconds, seconds, seconds, seconds),
    prefill=st.integers(0, 100_000),
    rows=st.integers(0, 2_000),
    context=st.integers(1, 10_000_000),
)
def test_linear_step_equals_the_sum_left_to_right(coefficients, prefill, rows, context):
    """a + b p + c d + e ctx in this order of float operations, rounded half-even, at least 1."""
    a, b, c, e = coefficients
    model = LinearLatency(
        step_s=a, per_prefill_token_s=b, per_decode_request_s=c, per_context_token_s=e
    )
    step = StepFeatures(ForwardMode.MIXED, prefill, 0, 1, rows, 0, context)
    expected = max(1, round((((a + b * prefill) + c * rows) + e * context) * 1_000_000_000))
    assert model.step_ns(step) == (expected, 0)


@pytest.mark.parametrize(
    ("seconds_a_step", "expected_ns"), [(0.0, 1), (2.5e-9, 2), (3.5e-9, 4), (0.005, 5_000_000)]
)
def test_linear_constant_step_rounds_half_to_even(seconds_a_step, expected_ns):
    """Halves go to the even neighbour in both paths; nothing is faster than 1 ns."""
    model = LinearLatency(
        step_s=seconds_a_step,
        per_prefill_token_s=0.0,
        per_decode_request_s=0.0,
        per_context_token_s=0.0,
        host_s=1e-6,
    )
    assert model.step_ns(decode_step(1, 1)) == (expected_ns, 1_000)
    device_ns, host_ns = model.decode_run_ns(decode_step(1, 1), 2)
    assert device_ns.tolist() == [expected_ns, expected_ns]
    assert host_ns.tolist() == [1_000, 1_000]

"""The roofline against lower bounds that are computed separately, and against common sense."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.latency.build import build_latency
from sim.latency.config import RooflineLatencyConfig
from sim.latency.hardware import load_hardware
from sim.latency.shape_files import load_model_shape
from sim.testing.latency_steps import decode_step, extend_step, mixed_step


def roofline(model, hardware="h200-sxm", **settings):
    return build_latency(
        RooflineLatencyConfig(kind="roofline", **settings),
        model=load_model_shape(model, Path()),
        hardware=load_hardware(hardware),
        base_dir=Path(),
    )


def prefill_step(num_tokens, num_cached=0):
    return extend_step((num_cached, num_tokens))


def device_ms(model, step):
    return model.step_ns(step).device_ns / 1e6


@pytest.mark.parametrize(
    ("model", "floor_ms"),
    [("gpt2", 0.06), ("qwen2.5-0.5b", 0.23), ("qwen3-0.6b", 0.28), ("llama-3.1-8b", 3.5)],
)
def test_roofline_decode_step_on_h200_meets_its_floor(model, floor_ms):
    """One row reads all weights at 4.3 TB/s: within 5 % (the floors have one to two digits)."""
    assert device_ms(roofline(model), decode_step(1, 1)) == pytest.approx(floor_ms, rel=0.05)


def test_roofline_context_of_64_rows_on_h200_adds_its_floor():
    """64 rows of 1k context add 2.0 ms of KV reads to an 8B decode step: within 5 %."""
    model = roofline("llama-3.1-8b")
    added_ms = device_ms(model, decode_step(64, 64_000)) - device_ms(model, decode_step(64, 64))
    assert added_ms == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize(
    ("model", "floor_ms", "tolerance"),
    [
        # The bounds leave out the weights of the output head and the KV writes, which count most
        # if the layers are small.
        ("gpt2", 0.54, 0.08),
        ("qwen2.5-0.5b", 2.1, 0.05),
        ("qwen3-0.6b", 2.9, 0.05),
        ("llama-3.1-8b", 37.6, 0.02),
    ],
)
def test_roofline_prefill_of_2048_on_h200_meets_its_floor(model, floor_ms, tolerance):
    """2,048 tokens at 790 TFLOP/s: never below the floor by more than its rounding."""
    took_ms = device_ms(roofline(model), prefill_step(2_048))
    assert took_ms == pytest.approx(floor_ms, rel=tolerance)
    assert took_ms >= floor_ms * 0.99


def test_roofline_8b_turns_compute_bound_near_184_tokens():
    """790 TFLOP/s over 4.3 TB/s is 184 tokens a step in 16-bit weights."""
    model = roofline("llama-3.1-8b")
    memory_bound_ms = device_ms(model, prefill_step(170)) - device_ms(model, prefill_step(85))
    compute_bound_ms = device_ms(model, prefill_step(400)) - device_ms(model, prefill_step(315))
    assert compute_bound_ms > 20 * memory_bound_ms


@given(num_tokens=st.integers(1, 8_192), num_cached=st.integers(0, 100_000))
def test_roofline_cached_prefix_costs_less_than_computing_it(num_tokens, num_cached):
    """Reusing a prefix never takes longer than prefilling it too."""
    model = roofline("llama-3.1-8b")
    with_cache = model.step_ns(prefill_step(num_tokens, num_cached)).device_ns
    without = model.step_ns(prefill_step(num_tokens + num_cached)).device_ns
    assert with_cache <= without


@given(num_rows=st.integers(1, 500), num_context=st.integers(500, 1_000_000))
def test_roofline_mixed_step_costs_no_more_than_its_two_halves(num_rows, num_context):
    """Prefill and decode together read the weights once, so they save time and hide none."""
    model = roofline("qwen2.5-7b")
    prefill, decode = prefill_step(512), decode_step(num_rows, num_context)
    mixed = mixed_step(((0, 512),), num_rows, num_context)
    alone = [model.step_ns(prefill).device_ns, model.step_ns(decode).device_ns]
    assert max(alone) <= model.step_ns(mixed).device_ns <= sum(alone) + 2


def test_roofline_overheads_add_to_device_and_host():
    """`step_overhead_s` goes to the device, `host_s` to the host."""
    bare, loaded = roofline("tiny"), roofline("tiny", step_overhead_s=1e-3, host_s=2e-3)
    step = decode_step(4, 100)
    assert loaded.step_ns(step).device_ns - bare.step_ns(step).device_ns == pytest.approx(
        1e6, abs=1
    )
    assert (bare.step_ns(step).host_ns, loaded.step_ns(step).host_ns) == (0, 2_000_000)


def test_roofline_slower_hardware_takes_longer():
    """The order of the published peaks is the order of the steps."""
    names = ["h200-sxm", "h100-sxm", "a100-80gb-sxm", "rtx-4090"]
    models = [roofline("qwen2.5-0.5b", name) for name in names]
    times = [model.step_ns(decode_step(8, 8_000)).device_ns for model in models]
    assert times == sorted(set(times))

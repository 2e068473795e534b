"""The roofline against lower bounds that are computed separately, and against common sense."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.errors import InputError
from sim.latency.architectures.model_key import load_model_shape
from sim.latency.config import RooflineLatencyConfig
from sim.latency.hardware import load_hardware
from sim.latency.kinds.build import ServedBy, build_latency
from sim.latency.shapes import Experts, Matrices
from tests.support.latency_steps import decode_step, extend_step, mixed_step


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


@pytest.mark.parametrize(
    ("name", "gib"),
    # What a token uses, but for the embedding: in 16 bits; with four experts a layer in 4.25 bits.
    [("Qwen/Qwen3-30B-A3B", 5.66), ("openai/gpt-oss-120b", 4.66)],
)
def test_roofline_one_row_reads_its_own_experts(name, gib):
    """At 4.8 TB/s x 4.3 / 4.8: the time of the active weights, not of all."""
    expected_ms = gib * 2**30 / 4.3e12 * 1e3
    assert device_ms(roofline(name), decode_step(1, 1)) == pytest.approx(expected_ms, rel=0.03)


@given(num_tokens=st.integers(1, 4_000))
def test_experts_read_grow_from_a_tokens_own_to_all(num_tokens):
    """Each token adds at most its own, and at least the share of those not yet read."""
    experts = Experts(128, 8, Matrices(1))
    read, more = experts.num_read(num_tokens), experts.num_read(num_tokens + 1)
    assert experts.num_read(1) == pytest.approx(8)
    assert 8 <= read * (1 + 1e-12) <= min(8 * num_tokens, 128) * (1 + 1e-9)
    assert more - read == pytest.approx(8 * (128 - read) / 128, abs=1e-9)


def test_roofline_fewer_bits_are_read_and_computed_faster():
    """Decode steps read half as much in fp8; prefills compute twice as fast, where a GPU can."""
    plain, short = "Qwen/Qwen3-32B", "Qwen/Qwen3-32B-FP8"
    ratios = [
        device_ms(roofline(short, gpu), step) / device_ms(roofline(plain, gpu), step)
        for gpu in ("h100-sxm", "a100-80gb-sxm")
        for step in (decode_step(1, 1), prefill_step(4_096))
    ]
    assert ratios == pytest.approx([0.5, 0.55, 0.5, 1], rel=0.06)


def test_roofline_windows_bound_what_decode_rows_read():
    """gpt-oss: beyond 128 tokens, half of the layers read no more."""
    model = roofline("openai/gpt-oss-120b")
    at = [device_ms(model, decode_step(64, 64 * context)) for context in (64, 128, 1_000, 2_000)]
    early, late = (at[1] - at[0]) / 64, (at[3] - at[2]) / 1_000
    assert late == pytest.approx(early / 2, rel=1e-4)


def test_roofline_sparse_attention_reads_selected_tokens_and_the_whole_index():
    """DeepSeek-V3.2 selects 2,048: beyond them a token costs 132 bytes a layer, not 1,284."""
    model = roofline("deepseek-ai/DeepSeek-V3.2", tp=8)
    at = [device_ms(model, decode_step(8, 8 * context)) for context in (1_000, 2_000, 4_000, 5_000)]
    assert (at[3] - at[2]) / (at[1] - at[0]) == pytest.approx(132 / 1_284, rel=1e-3)


def test_roofline_linear_attention_keeps_decode_steps_short():
    """A quarter of Qwen3.5's layers read earlier tokens; the others read a state of fixed size."""
    model = roofline("Qwen/Qwen3.5-397B-A17B", "b200-sxm", tp=8)
    short, long = (device_ms(model, decode_step(1, context)) for context in (1, 100_000))
    assert long - short == pytest.approx(100_000 * 15 * 1_024 / 6.94e12 * 1e3, rel=0.01)


@pytest.mark.parametrize("name", ["llama-3.1-70b", "Qwen/Qwen3-235B-A22B"])
def test_roofline_more_gpus_share_the_work(name):
    """Twice as many take less time, but more than half: they exchange what they computed."""
    for step in (decode_step(32, 32_000), prefill_step(2_048)):
        times = [device_ms(roofline(name, "b200-sxm", tp=tp), step) for tp in (1, 2, 4)]
        assert times[0] > times[1] > times[0] / 2
        assert times[1] > times[2] > times[1] / 2


def test_roofline_tp_that_does_not_divide_is_one_line():
    """The message names what does not divide."""
    with pytest.raises(InputError, match=r"latency\.tp: 3 does not divide the 32 attention heads"):
        roofline("llama-3.1-8b", tp=3)


def verify_step(num_rows, num_context, num_drafts):
    step = decode_step(num_rows, num_context)
    step.num_draft_tokens = num_rows * num_drafts
    return step


def speculating(num_drafts, share):
    return build_latency(
        RooflineLatencyConfig(kind="roofline", drafter_share=share),
        model=load_model_shape("llama-3.1-8b", Path()),
        hardware=load_hardware("h200-sxm"),
        base_dir=Path(),
        server=ServedBy(num_drafts=num_drafts, drafter="layer"),
    )


def test_roofline_verifying_costs_little_for_few_rows_and_much_for_many():
    """Few rows read all weights anyway; 512 rows of 4 tokens are bound by arithmetic."""
    model = speculating(3, 0.0)
    few = device_ms(model, verify_step(2, 2000, 3)) / device_ms(model, decode_step(2, 2000))
    many = device_ms(model, verify_step(512, 512, 3)) / device_ms(model, decode_step(512, 512))
    assert 1 <= few < 1.01
    assert 3 < many <= 4


def test_roofline_each_pass_of_the_drafter_takes_its_share():
    """Three passes of a tenth of a decode step each."""
    step, plain = verify_step(8, 8000, 3), decode_step(8, 8000)
    without, drafting = speculating(3, 0.0), speculating(3, 0.1)
    added_ms = device_ms(drafting, step) - device_ms(without, step)
    assert added_ms == pytest.approx(0.3 * device_ms(without, plain), rel=1e-6)

"""DeepEP: operators of experts and messages of servers that are spread over many GPUs."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.errors import InputError
from sim.latency.aiconfigurator.deployment import deployment_of, share_of_narrow, spreads_around
from sim.latency.aiconfigurator.model import AiconfiguratorLatency
from sim.latency.aiconfigurator.package import known_models, open_engine
from sim.latency.config import AiconfiguratorLatencyConfig, Parallelism
from tests.support.latency_steps import extend_step

R1, R1_FP4 = "deepseek-ai/DeepSeek-R1", "nvidia/DeepSeek-V3.1-NVFP4"


def engine(moe_ep, model=R1, *, system="gb200", a2a="deepep", **formats):
    pytest.importorskip("aiconfigurator_core", reason="pip install -e '.[aiconfigurator]'")
    section = AiconfiguratorLatencyConfig(
        kind="aiconfigurator", system=system, dp=moe_ep, moe_ep=moe_ep, moe_a2a_backend=a2a,
        quantization={"kv_cache": "fp8", **formats},
    )  # fmt: skip
    return open_engine(deployment_of(section, model, Path(), known_models()))


def decode_ms(found, rows):
    """The experts' part of a decode step with as many rows on each rank."""
    tokens = rows * found.decode.num_ranks
    return found.decode.experts_ms(tokens) + found.decode.messages_ms(rows)


def test_deepep_lists_are_the_packages_own():
    """Messages and experts instead of gathers; the one product with two names counts once."""
    names = [operator._name for operator in engine(32).model.generation_ops]
    chosen = engine(32).decode
    assert [names[place] for place in chosen.experts] == ["generation_moe"]
    messages = [names[place] for place in chosen.messages]
    assert messages == ["generation_moe_dispatch", "generation_moe_combine"]
    others = [names[place] for place in (*chosen.tokens, *chosen.rows)]
    assert "generation_qkv_a_proj_gemm" in others
    assert "generation_downscale_gemm" in names
    assert "generation_downscale_gemm" not in others


def test_deepep_sends_less_than_a_gather_of_all_ranks():
    """At 64 rows on each of 32 ranks a gather takes more than twice as long."""
    assert 2 * decode_ms(engine(32), 64) < decode_ms(engine(32, a2a="none"), 64)


@pytest.mark.parametrize(("moe_ep", "narrow", "wide"), [(24, 16, 32), (48, 32, 64), (8, 4, 16)])
def test_deepep_over_unmeasured_numbers_of_gpus_is_between_measured_ones(moe_ep, narrow, wide):
    """Linear in the experts of a GPU; `source` says so."""
    found = engine(moe_ep)
    assert found.source.endswith(f"experts between those of {narrow} and {wide} GPUs")
    assert found.decode.num_ranks == moe_ep
    if narrow > 4:
        low, high = (decode_ms(engine(size), 32) for size in (narrow, wide))
        wanted = high + (low - high) * share_of_narrow(moe_ep, narrow, wide)
        assert decode_ms(found, 32) == pytest.approx(wanted)
        assert found.decode.rows_ms(32, 1_500) == pytest.approx(
            engine(narrow).decode.rows_ms(32, 1_500)
        )


def test_deepep_messages_of_a_step_are_those_of_the_rank_with_the_most_tokens():
    """One rank prefills alone: its experts' work is shared out, its messages are not."""
    model = AiconfiguratorLatency(engine(32))
    step = extend_step((0, 8_192))
    alone = model.step_ns(step.in_group(8_192, 8_192, prefills=True)).device_ns
    beside = model.step_ns(step.in_group(32 * 8_192, 8_192, prefills=True)).device_ns
    found = engine(32).prefill
    experts_ms = found.experts_ms(32 * 8_192) - found.experts_ms(8_192)
    assert (beside - alone) / 1e6 == pytest.approx(experts_ms)
    assert found.messages_ms(8_192) > 4 * found.messages_ms(256)


@pytest.mark.parametrize("moe_ep", [32, 48])
def test_deepep_takes_experts_in_8_bits_for_those_in_4(moe_ep):
    """The package has none in 4 bits with DeepEP; it says that a weight has 4.5 bits."""
    short, long = engine(moe_ep, R1_FP4), engine(moe_ep, moe="fp8_block")
    lack = "for lack of data attention in fp8_block and moe in fp8_block; experts' times x 0.5625"
    assert lack in short.source
    assert "experts' times" not in long.source
    for ours, theirs in ((short.prefill, long.prefill), (short.decode, long.decode)):
        assert ours.experts_ms(4_096) == pytest.approx(0.5625 * theirs.experts_ms(4_096))
        assert ours.messages_ms(64) == theirs.messages_ms(64)


def test_deepep_for_a_model_without_experts_is_one_line():
    """Not a traceback of the package."""
    with pytest.raises(InputError, match=r"latency: .* operators with DeepEP$"):
        engine(4, "meta-llama/Meta-Llama-3.1-8B")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dp": 8, "moe_ep": 4}, "moe_a2a_backend deepep spreads whole experts: moe_ep must be 8"),
        ({}, "moe_a2a_backend deepep needs more than one GPU"),
    ],
)
def test_deepep_needs_whole_experts_on_several_gpus(settings, message):
    """It sends tokens to experts, not to parts of experts."""
    with pytest.raises(ValueError, match=message):
        AiconfiguratorLatencyConfig(
            kind="aiconfigurator", system="gb200", moe_a2a_backend="deepep", **settings
        )


@given(st.integers(2, 255), st.sampled_from([1, 2, 4, 8]))
def test_spreads_around_are_powers_of_two_nearest_first(ranks, tp):
    """Narrower ones on one side, wider ones on the other; each fits the ranks' GPUs."""
    moe_ep = ranks * tp
    narrower, wider = map(list, spreads_around(Parallelism(tp, ranks, 1, moe_ep)))
    for sizes in ([spread.moe_ep for spread in narrower], [spread.moe_ep for spread in wider]):
        assert all(size.bit_count() == 1 for size in sizes)
        distances = [abs(size - moe_ep) for size in sizes]
        assert all(near < far for near, far in pairwise(distances))
    assert all(spread.moe_ep < moe_ep for spread in narrower)
    assert all(moe_ep < spread.moe_ep <= 256 for spread in wider)
    assert all(spread.tp * spread.dp == spread.moe_ep for spread in (*narrower, *wider))


@given(st.integers(3, 255))
def test_share_of_narrow_is_linear_in_the_experts_of_a_gpu(moe_ep):
    """1 at the narrower size, 0 at the wider one; 256 experts are shared out."""
    narrow, wide = 1 << (moe_ep.bit_length() - 1), 1 << moe_ep.bit_length()
    share = share_of_narrow(moe_ep, narrow, wide)
    mixed = share * 256 / narrow + (1 - share) * 256 / wide
    assert mixed == pytest.approx(256 / moe_ep)
    assert 0 < share <= 1

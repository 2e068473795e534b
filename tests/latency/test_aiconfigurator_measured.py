"""The real package, if it is installed: the figures in docs/explanation/latency.md."""

from pathlib import Path

import pytest

from sim.core.errors import InputError
from sim.latency.aiconfigurator.deployment import deployment_of
from sim.latency.aiconfigurator.model import AiconfiguratorLatency
from sim.latency.aiconfigurator.package import known_models, open_engine
from sim.latency.config import AiconfiguratorLatencyConfig
from sim.testing.contracts import LatencyModelContract
from tests.support.latency_steps import decode_step, extend_step, mixed_step

EngineHandle = pytest.importorskip(
    "aiconfigurator_core.sdk.engine",
    reason="aiconfigurator-core is not installed: pip install -e '.[aiconfigurator]'",
).EngineHandle

LLAMA = "meta-llama/Meta-Llama-3.1-8B"


def measured(model="llama-3.1-8b", **settings):
    section = AiconfiguratorLatencyConfig(
        kind="aiconfigurator", **{"system": "h200_sxm", "version": None, **settings}
    )
    return AiconfiguratorLatency(open_engine(deployment_of(section, model, Path(), known_models())))


# Dense; sliding windows; experts; latent KV; sparse attention; linear attention.
DEPLOYMENTS = [
    ("qwen2.5-7b", {}),
    ("openai/gpt-oss-120b", {"backend": "vllm", "system": "h100_sxm", "tp": 2}),
    ("Qwen/Qwen3-30B-A3B", {"tp": 2, "moe_ep": 2}),
    ("deepseek-ai/DeepSeek-V3", {"tp": 8, "moe_ep": 8, "system": "b200_sxm"}),
    ("zai-org/GLM-5-FP8", {"tp": 8, "system": "b200_sxm"}),
    ("Qwen/Qwen3.5-397B-A17B", {"tp": 8, "system": "b200_sxm"}),
    ("MiniMaxAI/MiniMax-M2.5", {"dp": 4, "moe_ep": 4, "backend": "vllm"}),
]


class TestMeasuredLatency(LatencyModelContract):
    """One model of each architecture."""

    @pytest.fixture(params=DEPLOYMENTS, ids=lambda deployment: deployment[0])
    def make_model(self, request):
        model, settings = request.param
        return lambda: measured(model, **settings)


def decode(rows, context):
    return decode_step(rows, rows * context)


def prefill(rows, new, cached=0):
    return extend_step(*[(cached, new)] * rows)


@pytest.mark.parametrize(
    ("step", "milliseconds"),
    [
        (decode(1, 1_024), 4.867),
        (decode(16, 1_024), 5.354),
        (decode(64, 1_024), 7.235),
        (prefill(1, 512), 13.763),
        (prefill(1, 2_048), 44.725),
    ],
)
def test_measured_h200_steps_are_the_documented_ones(step, milliseconds):
    """Llama-3.1-8B with SGLang 0.5.14's kernels."""
    assert measured(version="0.5.14").step_ns(step).device_ns / 1e6 == pytest.approx(
        milliseconds, abs=0.001
    )


@pytest.mark.parametrize(("model", "settings"), [(LLAMA, {}), *DEPLOYMENTS[1:]])
def test_measured_steps_of_equal_rows_are_the_packages_own(model, settings):
    """What the package says of a whole prefill and a whole decode step."""
    section = AiconfiguratorLatencyConfig(
        kind="aiconfigurator", **{"system": "h200_sxm", **settings}
    )
    engine = open_engine(deployment_of(section, model, Path(), known_models()))
    handle = EngineHandle.compile(
        model, section.system, section.backend, backend_version=engine.version, **engine.arguments
    )
    ours = measured(model, **settings)
    theirs_ms = handle.decode_step_latency(64, 4_095, 2)
    assert ours.step_ns(decode(64, 4_096)).device_ns / 1e6 == pytest.approx(theirs_ms, rel=2e-3)
    theirs_ms, _, _ = handle.run_static(batch_size=2, isl=2_048, osl=1, mode="static_ctx")
    # The lists of some models leave out the output head of a prefill, 0.1 ms.
    assert ours.step_ns(prefill(2, 2_048)).device_ns / 1e6 == pytest.approx(theirs_ms, rel=2e-2)


def test_measured_mixed_step_costs_more_than_its_chunk_alone():
    """Decode rows join a chunk of latent KV: their attention is not lost."""
    model = measured("deepseek-ai/DeepSeek-V3", tp=8, moe_ep=8, system="b200_sxm")
    chunk = extend_step((0, 2_048))
    mixed = mixed_step(((0, 2_048),), 64, 64 * 8_192)
    added_ns = model.step_ns(mixed).device_ns - model.step_ns(chunk).device_ns
    attention_ns = (
        model.step_ns(decode(64, 8_192)).device_ns - model.step_ns(decode(64, 1)).device_ns
    )
    assert added_ns > attention_ns


def test_measured_verifying_is_more_rows_and_drafting_more_layers():
    """The package's own decode step with MTP: 1 + k tokens a row, and k layers more."""
    section = AiconfiguratorLatencyConfig(kind="aiconfigurator", system="h200_sxm")
    deployment = deployment_of(section, LLAMA, Path(), known_models())
    drafting = AiconfiguratorLatency(open_engine(deployment._replace(draft_layers=3)))
    plain = AiconfiguratorLatency(open_engine(deployment))
    step = decode_step(16, 16_000)
    step.num_draft_tokens = 48
    verified = plain.step_ns(decode_step(64, 64_000)).device_ns
    assert plain.step_ns(step).device_ns == pytest.approx(verified, rel=0.01)
    assert drafting.step_ns(step).device_ns == pytest.approx(verified * 35 / 32, rel=0.01)


def test_measured_h100_decodes_slower_than_h200():
    """By about the ratio of their memory bandwidths, 4.8 to 3.35."""
    step = decode(64, 4_096)
    ratio = measured(system="h100_sxm").step_ns(step).device_ns / measured().step_ns(step).device_ns
    assert 1.2 < ratio < 1.6


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        ("gpt2", {}, "gpt2: "),
        ("Qwen/Qwen3-33B", {}, r"unknown model 'Qwen/Qwen3-33B' \(did you mean Qwen/Qwen3-32B\?"),
        ("llama-3.1-8b", {"tp": 3}, "num_heads 32 should be divisible by tp_size 3"),
    ],
)
def test_measured_model_that_cannot_be_run_is_one_line(model, settings, message):
    """An architecture that the package lacks, an unknown name, a split that does not divide."""
    with pytest.raises(InputError, match=message):
        measured(model, **settings)


def test_measured_products_of_weights_in_blocks_leave_the_launches_out():
    """vLLM's were timed with the host's; who asks for them by name gets them."""
    model, settings = "Qwen/Qwen3-30B-A3B-FP8", {"backend": "vllm", "system": "h100_sxm"}
    own, plain, in_blocks = (
        measured(model, **settings, quantization=formats)
        for formats in ({}, {"gemm": "fp8"}, {"gemm": "fp8_block"})
    )
    assert own.source.endswith("; for lack of data gemm in fp8")
    step = decode(8, 1_024)
    assert own.step_ns(step) == plain.step_ns(step)
    # 48 layers have two such products: of 60 us each, with 15 us of them the kernel.
    assert in_blocks.step_ns(step).device_ns - own.step_ns(step).device_ns > 3e6


def test_measured_latent_attention_of_vllm_on_other_blackwells_is_b200s():
    """Their own times are longer by what no kernel takes; in SGLang's tables they are not."""
    model, step = "nvidia/Kimi-K2.5-NVFP4", decode(16, 1_024)
    settings = {"backend": "vllm", "tp": 4, "moe_tp": 4}
    b200, b300 = (measured(model, system=system, **settings) for system in ("b200_sxm", "b300_sxm"))
    assert b300.source.endswith("; latent attention of b200_sxm")
    assert "latent" not in b200.source
    assert b300.step_ns(step).device_ns == pytest.approx(b200.step_ns(step).device_ns, rel=0.02)
    assert (
        b300.step_ns(prefill(1, 4_096)).device_ns < 1.1 * b200.step_ns(prefill(1, 4_096)).device_ns
    )

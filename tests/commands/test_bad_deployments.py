"""Deployments that cannot be: one line that names the key, and what there is instead."""

import pytest

SCENARIO = """\
name: deployment
model: Qwen/Qwen3-30B-A3B
latency: {kind: aiconfigurator, system: h200_sxm, backend: FAMILY}
workload: {kind: synthetic, num_requests: 2, arrivals: {kind: constant, rate_rps: 10},
  prompt_tokens: {kind: constant, value: 20}, output_tokens: {kind: constant, value: 4}}
scheduler: {family: FAMILY}
"""
LARGE = "model=deepseek-ai/DeepSeek-V3"
SHARES = {"sglang": "mem_fraction_static 0.88", "vllm": "gpu_memory_utilization 0.92"}
CASES = {
    "system": (["latency.system=h200"], ("latency.system=h200: unknown system 'h200' (did you mean"
               " h200_sxm? known: a100_sxm, b200_sxm, ")),
    "backend": (["latency.backend=vlm"], ("unknown backend on h200_sxm 'vlm' (did you mean vllm?"
                " known: sglang, trtllm, vllm)")),
    "version": (["latency.version=0.1.0"], "latency.version=0.1.0: unknown version of"),
    "format": (["latency.quantization.gemm=fp9"], ("unknown number format 'fp9' (did you mean fp8?"
               " known: bfloat16, fp8, ")),
    "KV format": (["latency.quantization.kv_cache=fp9"], "known: bfloat16, fp8, "),
    "two KV formats": (["latency.quantization.kv_cache=fp8", "scheduler.kv_cache_dtype=bfloat16"],
                       "is fp8, but scheduler.kv_cache_dtype says bfloat16: give one of them"),
    "hardware": (["hardware=b200-sxm"], ("hardware=b200-sxm: is b200-sxm, but latency.system is"
                 " h200_sxm: give hardware h200-sxm or leave it out")),
    "heads": (["latency.tp=3"], ("latency.tp=3: 3 does not divide the 32 attention heads of"
              " Qwen/Qwen3-30B-A3B")),
    "experts": (["latency.dp=3", "latency.moe_ep=3"], ("latency.moe_ep=3: 3 does not divide the 128"
                " experts of Qwen/Qwen3-30B-A3B")),
    "groups": (["latency.dp=4", "latency.moe_ep=3"], ("moe_ep 3 does not fit the 4 GPUs of tp 1 x"
               " dp 4")),
    "no experts": (["model=Qwen/Qwen3-8B", "latency.tp=2", "latency.moe_ep=2"],
                   "latency.moe_ep=2: is 2, but Qwen/Qwen3-8B has no experts"),
    "number of ranks": (["latency.dp=3"], ("messages were measured between 2, 4, 8, ... GPUs, and"
                        " tp x dp is 3")),
    "room": ([LARGE, "latency.tp=2"], "DeepSeek-V3 does not fit: its weights take 313.5 GiB"),
    "room of a rank": ([LARGE, "latency.dp=4", "latency.moe_ep=4"], ("GiB that SHARE of 141."
                       "0 GiB leaves on each of 4 h200_sxm (dp)")),
    "data": (["model=deepseek-ai/DeepSeek-V3.2", "latency.system=l40s", "latency.tp=8"],
             ("no data: no DSA module rows loaded from 1 source(s); it has those of"
             " deepseek-ai/DeepSeek-V3.2 in its own formats with FAMILY on b200_sxm, ")),
    "arithmetic": (["latency.quantization.gemm=nvfp4"], ("no data: h200_sxm has no arithmetic in"
                   " fp4; it has those of Qwen/Qwen3-30B-A3B in its own formats with FAMILY on ")),
    "architecture": (["model=gpt2"], "has no operators of a gpt2 (it has those of: deepseek_v3, "),
}  # fmt: skip


@pytest.mark.parametrize("family", ["sglang", "vllm"])
@pytest.mark.parametrize("case", CASES)
def test_deployment_that_cannot_be_is_one_line(simulate, folder, family, case):
    """On stderr, with file or option; found before anything runs."""
    pytest.importorskip("aiconfigurator_core.sdk.engine")
    changes, message = CASES[case]
    (folder / "d.yaml").write_text(SCENARIO.replace("FAMILY", family), encoding="utf-8")
    sets = [part for change in changes for part in ("--set", change)]
    ended = simulate("validate", "d.yaml", *sets)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
    assert ended.err.startswith(("simulate: --set ", "simulate: d.yaml:3: latency: "))
    assert message.replace("FAMILY", family).replace("SHARE", SHARES[family]) in ended.err


def test_deployment_with_any_engine_s_kernels_has_room(simulate, folder):
    """The package takes another kind of memory share for trtllm."""
    pytest.importorskip("aiconfigurator_core.sdk.engine")
    (folder / "d.yaml").write_text(SCENARIO.replace("FAMILY", "vllm"), encoding="utf-8")
    assert simulate("validate", "d.yaml", "--set", "latency.backend=trtllm").code == 0

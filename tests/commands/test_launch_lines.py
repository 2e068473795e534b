"""Launch commands as blogs, recipes and cookbooks have them: each runs, or says why not.

The flags are those that people use for these models; each is imported, and sends short traffic.
"""

from typing import NamedTuple

import pytest

from sim.cli import main

CLIENT = "vllm bench serve --input-len 200 --output-len 8 --num-prompts 4 --max-concurrency 2"
CHAIN = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
FUSED = """'{"pass_config":{"fuse_allreduce_rms":true},"cudagraph_mode":"FULL_DECODE_ONLY"}'"""
LMCACHE = """'{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}'"""
NIXL = """--kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"%s"}'"""
SGLANG = "python3 -m sglang.launch_server --model-path"


class Line(NamedTuple):
    """`refused` is the reason on stderr; without one the scenario runs."""

    hardware: str
    servers: tuple[str, ...]
    refused: str = ""
    notes: tuple[str, ...] = ()


def line(hardware, *servers, refused="", notes=()):
    return Line(hardware, servers, refused, notes)


VLLM_LINES = {
    "deepseek-r1, tp and ep": line(
        "h200_sxm",
        "vllm serve deepseek-ai/DeepSeek-R1-0528 \\\n  --trust-remote-code \\\n"
        "  --tensor-parallel-size 8 \\\n  --enable-expert-parallel",
    ),
    "deepseek-r1, dp and ep": line(
        "h200_sxm",
        "VLLM_ALL2ALL_BACKEND=deepep_low_latency VLLM_USE_DEEP_GEMM=1 vllm serve"
        " deepseek-ai/DeepSeek-R1-0528 --data-parallel-size 8 --enable-expert-parallel"
        " --disable-log-requests",
        notes=("VLLM_ALL2ALL_BACKEND=deepep_low_latency, VLLM_USE_DEEP_GEMM=1: changes only",),
    ),
    "deepseek-v3.2, mtp": line(
        "h200_sxm",
        "vllm serve deepseek-ai/DeepSeek-V3.2 -tp 8 --tokenizer-mode deepseek_v32"
        " --tool-call-parser deepseek_v32 --enable-auto-tool-choice"
        " --speculative-config.method mtp --speculative-config.num_speculative_tokens 1"
        " --max-num-seqs 256 --no-enable-prefix-caching",
    ),
    "deepseek-v3, wide ep": line(
        "h200_sxm",
        "vllm serve deepseek-ai/DeepSeek-V3 --data-parallel-size 16 --data-parallel-size-local 8"
        " --data-parallel-address 10.0.0.1 --data-parallel-rpc-port 13345 --enable-expert-parallel"
        " --all2all-backend deepep_high_throughput --enable-dbo --api-server-count=8 --enable-eplb"
        """ --eplb-config '{"window_size":1000,"num_redundant_experts":32}'""",
    ),
    "deepseek-v3, second node": line(
        "h200_sxm",
        "vllm serve deepseek-ai/DeepSeek-V3 --headless --data-parallel-size 16"
        " --data-parallel-start-rank 8 --enable-expert-parallel",
        refused="--headless: cannot be simulated: launches a part of a server",
    ),
    "gpt-oss in docker": line(
        "h100_sxm",
        "docker run --gpus all --ipc=host -p 8000:8000 -e HF_TOKEN=$HF_TOKEN"
        " vllm/vllm-openai:v0.24.0 --model openai/gpt-oss-120b --gpu-memory-utilization 0.92"
        " --max-num-batched-tokens 32768 --max-num-seqs 128 --watermark 0.01"
        " --attention-backend FLASH_ATTN --enable-prefix-caching --async-scheduling",
        notes=("vLLM 0.24.0: rules are those of 0.19.0", "not simulated: watermark 0.01"),
    ),
    "gpt-oss with eagle3": line(
        "h100_sxm",
        "vllm serve openai/gpt-oss-120b --async-scheduling -tp=2 --stream-interval 20"
        """ --speculative-config '{"model": "nvidia/gpt-oss-120b-Eagle3","""
        """ "num_speculative_tokens": 3, "draft_tensor_parallel_size": 1}'""",
    ),
    "qwen3-235b, fp8": line(
        "h200_sxm",
        "vllm serve Qwen/Qwen3-235B-A22B-Instruct-2507-FP8 --tensor-parallel-size 4 -O3"
        " --enable-expert-parallel --max-model-len 32k --kv-cache-dtype fp8"
        f" --compilation-config {FUSED}",
        notes=("is not known: Qwen/Qwen3-235B-A22B-FP8 is taken",),
    ),
    "qwen3-next, mtp": line(
        "h100_sxm",
        "vllm serve Qwen/Qwen3-Next-80B-A3B-Instruct --gpu-memory-utilization 0.8 -tp 4"
        """ --speculative-config '{"method":"qwen3_next_mtp","num_speculative_tokens":2}'""",
        notes=("kind roofline, because",),
    ),
    "qwen3-coder, dp": line(
        "h200_sxm",
        "VLLM_USE_DEEP_GEMM=1 vllm serve Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8"
        " --max-model-len 131072 --enable-expert-parallel --data-parallel-size 8",
        notes=("is taken with weights of fp8",),
    ),
    "glm-4.5, mtp": line(
        "h200_sxm",
        "vllm serve zai-org/GLM-4.5-FP8 --tensor-parallel-size 8 --tool-call-parser glm45"
        " --reasoning-parser glm45 --enable-auto-tool-choice"
        " --speculative-config.method mtp --speculative-config.num_speculative_tokens 1",
    ),
    "kimi-k2": line(
        "h200_sxm",
        "vllm serve moonshotai/Kimi-K2-Instruct --port 8000 --served-model-name kimi-k2"
        " --trust-remote-code --tensor-parallel-size 16 --tool-call-parser kimi_k2"
        " --max-num-batched-tokens 8192 --gpu-memory-utilization 0.85",
    ),
    "kimi-k2.5, context parallel": line(
        "h200_sxm",
        "vllm serve moonshotai/Kimi-K2.5 -tp 8 --mm-encoder-tp-mode data"
        " --decode-context-parallel-size 8"
        " --compilation_config.pass_config.fuse_allreduce_rms true",
        notes=("--decode-context-parallel-size 8: not simulated: context parallelism",),
    ),
    "llama-4": line(
        "h200_sxm",
        "VLLM_DISABLE_COMPILE_CACHE=1 vllm serve meta-llama/Llama-4-Scout-17B-16E-Instruct"
        " --tensor-parallel-size 8 --max-model-len 1000000 --limit-mm-per-prompt.image 5"
        """ --override-generation-config='{"attn_temperature_tuning": true}'""",
    ),
    "llama-3.3, fp8 on blackwell": line(
        "b200_sxm",
        "vllm serve nvidia/Llama-3.3-70B-Instruct-FP8 --kv-cache-dtype fp8 --async-scheduling"
        " --no-enable-prefix-caching --max-num-batched-tokens 8192 --max-num-seqs 512"
        " --compilation-config.pass_config.enable_fi_allreduce_fusion true"
        " --compilation-config.custom_ops+=+rms_norm,+quant_fp8",
    ),
    "mistral large": line(
        "h200_sxm",
        "vllm serve mistralai/Mistral-Large-3-675B-Instruct-2512 --tensor-parallel-size 8"
        " --tokenizer_mode mistral --config_format mistral --load_format mistral",
        refused="unknown model 'mistralai/Mistral-Large-3-675B-Instruct-2512'",
    ),
    "mistral 7b, an old server": line(
        "a100_sxm",
        "python -m vllm.entrypoints.openai.api_server --host 0.0.0.0 --swap-space 16"
        " --model mistralai/Mistral-7B-Instruct-v0.3 --max_model_len 8192 --disable-log-requests"
        " --max-num-partial-prefills 2 --enforce-eager --dtype half 2>&1 | tee server.log",
        notes=("--max-num-partial-prefills 2: not simulated",),
    ),
    "lmcache": line(
        "h100_sxm",
        "LMCACHE_CHUNK_SIZE=256 LMCACHE_LOCAL_CPU=True CUDA_VISIBLE_DEVICES=0 vllm serve"
        " Qwen/Qwen3-8B --max-model-len 8192 --gpu-memory-utilization 0.85"
        f" --kv-transfer-config {LMCACHE} >> logs/vllm.log &",
        notes=("LMCacheConnectorV1 is not simulated",),
    ),
    "offloaded kv": line(
        "h100_sxm",
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --kv-offloading-size 40"
        " --kv-offloading-backend native --disable-hybrid-kv-cache-manager",
    ),
    "gemma": line(
        "h100_sxm",
        "vllm serve google/gemma-3-27b-it --max-model-len 16384 --mm-processor-cache-gb 0"
        """ --limit-mm-per-prompt '{"image":0}'""",
    ),
    "prefill and decode": line(
        "h100_sxm",
        *(
            "VLLM_NIXL_SIDE_CHANNEL_PORT=5600 vllm serve Qwen/Qwen3-32B -tp 2 "
            + NIXL % f"kv_{role}"
            for role in ("producer", "consumer")
        ),
    ),
    "embeddings": line(
        "h100_sxm",
        "vllm serve Qwen/Qwen3-Embedding-8B --task embed",
        refused="--task embed: only generation is simulated",
    ),
}
SGLANG_LINES = {
    "deepseek-v3, dp attention": line(
        "h200_sxm",
        f"{SGLANG} deepseek-ai/DeepSeek-V3 --tp 8 --dp 8 --enable-dp-attention --port 30000",
    ),
    "deepseek-r1, mtp": line(
        "h200_sxm",
        f"{SGLANG} deepseek-ai/DeepSeek-R1-0528 --tp 8 --speculative-algorithm EAGLE {CHAIN}"
        " --mem-fraction-static 0.8 --cuda-graph-max-bs 64 --attention-backend fa3",
    ),
    "deepseek-r1, trees of drafts": line(
        "h200_sxm",
        f"{SGLANG} deepseek-ai/DeepSeek-R1 --tp 8 --speculative-algo NEXTN"
        " --speculative-num-steps 2 --speculative-eagle-topk 4 --speculative-num-draft-tokens 4",
        refused="--speculative-eagle-topk 4: only chains of drafts are simulated",
    ),
    "deepseek-v3.2, deepep": line(
        "h200_sxm",
        "python -m sglang.launch_server --model deepseek-ai/DeepSeek-V3.2-Exp --tp 8 --ep 8 --dp 8"
        " --enable-dp-attention --moe-a2a-backend deepep --deepep-mode auto"
        " --nsa-prefill-backend flashmla_sparse --nsa-decode-backend fa3",
        notes=("--nsa-decode-backend fa3: changes only how long",),
    ),
    "deepseek-v3, two nodes": line(
        "h100_sxm",
        f"{SGLANG} deepseek-ai/DeepSeek-V3 --tp 16 --dist-init-addr 10.0.0.1:5000 --nnodes 2"
        " --node-rank 0 --trust-remote-code --host 0.0.0.0 --port 40000",
    ),
    "deepseek-r1, fp4": line(
        "b200_sxm",
        f"SGLANG_ENABLE_SPEC_V2=1 {SGLANG} nvidia/DeepSeek-R1-0528-FP4 --tp 4"
        " --quantization modelopt_fp4 --kv-cache-dtype fp8_e4m3 --attention-backend trtllm_mla"
        " --moe-runner-backend flashinfer_trtllm --enable-flashinfer-allreduce-fusion"
        " --chunked-prefill-size 16384 --scheduler-recv-interval 10 --disable-radix-cache",
    ),
    "qwen3 in docker": line(
        "h100_sxm",
        "docker run --gpus all --shm-size 32g -p 30000:30000 --ipc=host --env 'HF_TOKEN=x'"
        f" lmsysorg/sglang:v0.5.15-cu129 {SGLANG} Qwen/Qwen3-32B --tp 4 --reasoning-parser qwen3",
        notes=("SGLang 0.5.15: rules are those of 0.5.17",),
    ),
    "hicache with mooncake": line(
        "h100_sxm",
        "sglang serve Qwen/Qwen3-30B-A3B --page-size 64 --enable-hierarchical-cache"
        " --hicache-ratio 2 --hicache-write-policy write_through --hicache-io-backend direct"
        " --hicache-mem-layout page_first_direct --hicache-storage-backend mooncake",
        notes=("set scheduler.host_cache", "--hicache-storage-backend mooncake: not simulated"),
    ),
    "gpt-oss, eagle3": line(
        "h100_sxm",
        "sglang serve --model-path openai/gpt-oss-120b --tp 4 --speculative-algorithm EAGLE3"
        f" --speculative-draft-model-path lmsys/EAGLE3-gpt-oss-120b-bf16 {CHAIN}",
    ),
    "llama-4": line(
        "h100_sxm",
        f"{SGLANG} meta-llama/Llama-4-Scout-17B-16E-Instruct --tp 8 --context-length 1000000"
        " --enable-multimodal --attention-backend fa3",
    ),
    "glm-4.6": line(
        "h200_sxm",
        f"{SGLANG} zai-org/GLM-4.6-FP8 --tp-size 8 --tool-call-parser glm45"
        f" --speculative-algorithm EAGLE {CHAIN} --mem-fraction-static 0.9",
        refused="unknown model 'zai-org/GLM-4.6-FP8'",
    ),
    "qwen3-next, mtp": line(
        "h100_sxm",
        "python -m sglang.launch_server --model Qwen/Qwen3-Next-80B-A3B-Instruct --tp 4"
        f" --speculative-algo NEXTN {CHAIN} --mamba-scheduler-strategy extra_buffer --page-size 64",
    ),
    "prefill and decode": line(
        "h100_sxm",
        *(
            f"{SGLANG} Qwen/Qwen3-32B --tp 2 --disaggregation-mode {role}"
            " --disaggregation-ib-device mlx5_0 --disaggregation-transfer-backend nixl"
            for role in ("prefill", "decode")
        ),
    ),
}
LINES = {f"{family}: {name}": each
         for family, lines in (("vllm", VLLM_LINES), ("sglang", SGLANG_LINES))
         for name, each in lines.items()}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_a_line_runs_or_says_why_not(tmp_path, capsys, name):
    pytest.importorskip("aiconfigurator_core", reason="pip install -e '.[aiconfigurator]'")
    hardware, servers, refused, notes = LINES[name]
    lines = [word for server in servers for word in ("--server", server)]
    out = tmp_path / "out"
    words = ["--command", CLIENT, *lines, "--hardware", hardware, "--out", str(out)]
    code = main(["import", *words])
    err = capsys.readouterr().err
    if refused:
        assert (code, err.count("\n")) == (2, 1)
        assert refused in err
        return
    assert code == 0, err
    assert "not known, so not simulated" not in err
    assert [note for note in notes if note not in err] == []
    assert main(["run", str(out / "scenario.yaml")]) == 0
    assert "TTFT" in capsys.readouterr().out

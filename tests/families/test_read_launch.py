"""Launch commands are read back as they were written."""

import pytest

from sim.core.errors import InputError
from sim.core.flags import split_command
from sim.families import FAMILIES

SGLANG = {
    "page_size": 64, "max_total_tokens": 65536, "chunked_prefill_size": 4096,
    "max_running_requests": 77, "schedule_policy": "lpm", "disable_radix_cache": True,
    "schedule_conservativeness": 0.3, "prefill_decode_interval": 2,
    "prefill_delayer": {"queue_min_ratio": 0.5},
    "clip_max_new_tokens": 512,
    "scheduler_recv_interval": 30, "radix_eviction_policy": "slru",
    "mamba_full_memory_ratio": 0.5, "mamba_ssm_dtype": "bfloat16", "swa_full_tokens_ratio": 0.3,
    "radix_eviction_policy_config": {"protected_threshold": 3},
    "speculative_algorithm": "NEXTN", "speculative_num_steps": 2, "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 3, "speculative_draft_model_path": "org/drafter",
}  # fmt: skip
VLLM = {
    "max_num_batched_tokens": 4096, "max_num_seqs": 3000, "block_size": 32,
    "enable_prefix_caching": False, "scheduling_policy": "priority", "max_model_len": 9000,
    "speculative_config": {"method": "eagle3", "num_speculative_tokens": 3, "model": "org/drafter"},
}  # fmt: skip


def read(text, family="sglang", system="h100_sxm"):
    return FAMILIES[family].read_launch(split_command(text, "--server"), system)


@pytest.mark.parametrize(("family", "settings"), [("sglang", SGLANG), ("vllm", VLLM)])
def test_settings_survive_the_way_to_flags_and_back(family, settings):
    """One table serves both ways."""
    section = FAMILIES[family].section()(family=family, **settings)
    command = FAMILIES[family].launch_command(section).command.replace("$MODEL", "org/model")
    found = read(command, family)
    assert found.model == "org/model"
    assert found.scheduler == {"family": family, **settings}
    assert (found.ignored, found.unknown) == ((), ())
    other = next(name for name in FAMILIES if name != family)
    assert read(command, other) is None


@pytest.mark.parametrize(
    ("flags", "parallel", "replicas"),
    [
        ("--tp 4 --pp 2", {"tp": 4, "dp": 1, "pp": 2, "moe_ep": 1}, 1),
        ("--tp-size 8 --dp 2", {"tp": 8, "dp": 1, "pp": 1, "moe_ep": 1}, 2),
        ("--tp 8 --dp 8 --enable-dp-attention --ep 8", {"tp": 1, "dp": 8, "pp": 1, "moe_ep": 8}, 1),
        ("--tp 8 --attn-dp-size 4", {"tp": 2, "dp": 4, "pp": 1, "moe_ep": 1}, 1),
    ],
)
def test_sglang_ranks(flags, parallel, replicas):
    """With DP attention, DP divides the GPUs of TP; otherwise it multiplies servers."""
    found = read(f"python -m sglang.launch_server --model-path m {flags}")
    assert (found.parallel, found.replicas) == (parallel, replicas)


def test_host_preset_goes_with_the_scheduling():
    """vLLM's newest version schedules ahead unless told not to."""
    assert read("vllm serve m", "vllm").host == "vllm-async"
    assert read("vllm serve m --no-async-scheduling", "vllm").host == "vllm-sync"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--schedule-policy priority", "does not start with it"),
        ("--radix-eviction-policy-config [1", "no JSON object"),
        ("--speculative-algo EAGLE --speculative-eagle-topk 4", "only chains of drafts"),
        ("--speculative-algo NGRAM", "--speculative-ngram-max-bfs-breadth 10: only chains"),
    ],
)
def test_sglang_command_that_cannot_start_is_refused(flags, message):
    with pytest.raises(InputError, match=message):
        read(f"python -m sglang.launch_server --model-path m {flags}")


def test_vllm_ranks():
    """DP multiplies the GPUs of TP, and experts are spread over all of them."""
    text = "vllm serve m -tp 2 --data-parallel-size 4 --enable-expert-parallel"
    assert read(text, "vllm").parallel == {"tp": 2, "dp": 4, "pp": 1, "moe_ep": 8}
    assert read("vllm serve m -tp 2 -pp 4", "vllm").parallel["pp"] == 4


def test_defaults_depend_on_the_gpu():
    """And are said to be defaults."""
    text = "python -m sglang.launch_server --model-path m"
    assert read(text, system="b200_sxm").scheduler["chunked_prefill_size"] == 16_384
    assert "8192 is SGLang's default on h100_sxm" in read(text).notes[0]
    chunks = {system: read(text, system=system).scheduler["chunked_prefill_size"]
              for system in ("a100_sxm", "rtx_pro_6000_server", "l4", "l40s", "a10")}  # fmt: skip
    assert list(chunks.values()) == [8192, 8192, 2048, 4096, 2048]
    assert read("vllm serve m", "vllm", "rtx_pro_6000_server").scheduler["max_num_seqs"] == 1024
    small = read("vllm serve m", "vllm", "a100_sxm").scheduler
    assert (small["max_num_batched_tokens"], small["max_num_seqs"]) == (2048, 256)


def test_host_memory_is_not_taken_without_its_speed():
    """The command does not say how fast KV is loaded back."""
    found = read("python -m sglang.launch_server --model-path m --enable-hierarchical-cache")
    assert "host_cache" not in found.scheduler
    assert "set scheduler.host_cache" in found.notes[0]


def test_host_pool_of_a_decode_server_is_taken():
    """Without a hierarchical cache, the ratio is the size of its memory for retracted requests."""
    flags = "--hicache-ratio 0.5 --disaggregation-decode-retraction-backup host_pool"
    text = f"python -m sglang.launch_server --model-path m {flags} --disaggregation-mode "
    decode = read(text + "decode")
    assert decode.scheduler["hicache_ratio"] == 0.5
    assert decode.scheduler["disaggregation_decode_retraction_backup"] == "host_pool"
    assert "hicache_ratio" not in read(text + "prefill").scheduler


def test_formats_and_what_is_not_known():
    """Formats go to `latency.quantization`; variables and flags that are not known are named."""
    found = read(
        "SGLANG_X=1 SGLANG_RETRACT_DECODE_STEPS=40 python -m sglang.launch_server --model-path m"
        " --quantization fp8 --kv-cache-dtype fp8_e4m3 --port 1 --attention-backend fa3"
    )
    assert found.quantization == {"kv_cache": "fp8", "gemm": "fp8", "moe": "fp8_block"}
    assert found.scheduler["retract_decode_steps"] == 40
    assert found.ignored == ("--port",)
    assert found.unknown == ("SGLANG_X",)
    assert any(
        note.startswith("--attention-backend fa3: changes only how long") for note in found.notes
    )


def test_sglang_drafts():
    """What SGLang turns off, and what the command does not say, is named in notes."""
    text = "python -m sglang.launch_server --model-path m --speculative-algorithm"
    found = read(f"{text} standalone --speculative-draft-model-path d --enable-mixed-chunk")
    assert found.scheduler["speculative_algorithm"] == "STANDALONE"
    assert found.scheduler["max_running_requests"] == 48
    assert "enable_mixed_chunk" not in found.scheduler
    assert found.scheduler["speculative_draft_model_path"] == "d"
    notes = "; ".join(found.notes)
    for part in ("set acceptance", "SGLang chooses it by the model", "SGLang turns it off"):
        assert part in notes
    ngram = read(f"{text} NGRAM --speculative-ngram-max-bfs-breadth 1")
    assert ngram.scheduler["speculative_algorithm"] == "NGRAM"


def test_vllm_drafts():
    """Keys of the drafter that change no decision are named in a note; a bad text is one line."""
    text = (
        """vllm serve m --speculative-config '{"method": "ngram", "num_speculative_tokens": 2%s}'"""
    )
    found = read(text % "", "vllm")
    assert found.scheduler["speculative_config"] == {"method": "ngram", "num_speculative_tokens": 2}
    assert found.host == "vllm-sync"
    assert "set acceptance" in found.notes[0]
    more = read(text % ', "prompt_lookup_max": 4, "draft_tensor_parallel_size": 1', "vllm")
    assert "--speculative-config: not simulated: draft_tensor_parallel_size" in more.notes
    with pytest.raises(InputError, match="--server: --speculative-config must be a JSON object"):
        read("vllm serve m --speculative-config eagle", "vllm")

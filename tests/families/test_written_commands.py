"""Launch commands as people write them: shells, containers, files of flags, dots, short forms."""

import json

import pytest

from sim.commands.import_commands import read_server
from sim.core.errors import InputError


def read(text, system="h100_sxm"):
    return read_server(text, system)


DRAFTS = {"method": "mtp", "num_speculative_tokens": 2}


@pytest.mark.parametrize(
    "flags",
    [
        "--speculative-config.method mtp --speculative-config.num_speculative_tokens 2",
        "--speculative_config.method=mtp --speculative-config.num_speculative_tokens=2",
        f"--speculative-config='{json.dumps(DRAFTS)}'",
        """-sc '{"method": "qwen3_next_mtp", "num_speculative_tokens": 2}'""",
        "--spec-method mtp --spec-tokens 2",
    ],
)
def test_every_way_to_write_an_object(flags):
    """Of vLLM's flags that take JSON; old names of MTP mean MTP."""
    found = read(f"vllm serve m {flags}")
    assert found.scheduler["speculative_config"] == DRAFTS
    assert found.unknown == ()


def test_a_drafter_without_a_method_is_found_by_its_name():
    """As vLLM does it."""
    for model, method in (("x/EAGLE3-m", "eagle3"), ("x/eagle-m", "eagle"), ("x/m", "draft_model")):
        found = read(f"vllm serve m --spec-model {model} --spec-tokens 3")
        assert found.scheduler["speculative_config"]["method"] == method


def test_drafts_that_are_not_simulated_are_refused():
    with pytest.raises(InputError, match="method ngram, eagle, eagle3, mtp or draft_model: no oth"):
        read("vllm serve m -sc.method medusa -sc.num_speculative_tokens 1")


def test_compilation_config():
    """The largest graph is a key; all else only changes how long steps take."""
    found = read(
        "vllm serve m -O3 --compilation-config.max_cudagraph_capture_size 256"
        " --compilation-config.pass_config.fuse_allreduce_rms true"
    )
    assert found.scheduler["max_cudagraph_capture_size"] == 256
    assert "--optimization-level 3: changes only how long steps take" in " ".join(found.notes)
    assert '"pass_config"' in " ".join(found.notes)
    assert not found.unknown


@pytest.mark.parametrize(
    ("flags", "key", "value"),
    [
        ("--max-model-len=32k", "max_model_len", 32_000),
        ("--max-num-batched-tokens 16K", "max_num_batched_tokens", 16_384),
        ("--no-enable-prefix-caching", "enable_prefix_caching", False),
        ("--disable-prefix-caching", "enable_prefix_caching", False),
        ("-asc 4", "api_server_count", 4),
        ("--device-memory-utilization 0.8", "gpu_memory_utilization", 0.8),
        ("--performance-mode throughput", "max_num_seqs", 2048),
    ],
)
def test_values_and_short_forms(flags, key, value):
    assert read(f"vllm serve m {flags}").scheduler[key] == value


def test_lengths_that_vllm_chooses_are_left_out():
    for flag in ("--max-model-len -1", "--max-model-len auto"):
        assert "max_model_len" not in read(f"vllm serve m {flag}").scheduler


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve m -tp 4",
        "vllm serve -tp=4 m",
        "vllm serve --host 0.0.0.0 --served-model-name=x --trust-remote-code m -tp 4",
        "CUDA_VISIBLE_DEVICES=0,1 HF_HOME=/x vllm serve m -tp 4 > log 2>&1 &",
        "export A=1 && cd /x && nohup /venv/bin/vllm serve m \\\n  -tp 4 \\  \n 2>&1 | tee log",
        "# the server\nvllm serve m \\\n  --tensor-parallel-size 4",
        "python3 -m vllm.entrypoints.openai.api_server --model m --tensor_parallel_size 4",
        "docker run --gpus all -e A=b -p 8000:8000 vllm/vllm-openai:latest --model m -tp 4",
        "docker run --gpus all vllm/vllm-openai:latest m -tp 4 --disable-log-requests",
        "docker run rocm/vllm:nightly vllm serve m -tp 4",
        "docker run --name x/vllm -v /x:/models/vllm -d vllm/vllm-openai@sha256:1 --model m -tp 4",
    ],
)
def test_a_server_in_any_wrapping(text):
    found = read(text)
    assert (found.model, found.parallel["tp"], found.unknown) == ("m", 4, ())


@pytest.mark.parametrize(
    "text",
    [
        "python3 -m sglang.launch_server --model-path m --tp 4",
        "sglang serve m --tp-size=4",
        "sglang serve --model m --tensor-parallel-size 4",
        "docker run --env 'A=b' x/sglang:latest python3 -m sglang.launch_server --model m --tp 4",
    ],
)
def test_a_server_of_sglang_in_any_wrapping(text):
    found = read(text)
    assert (found.model, found.parallel["tp"], found.unknown) == ("m", 4, ())


def test_a_file_of_flags(tmp_path):
    """vLLM's and SGLang's `--config`; flags of the command go before those of the file."""
    path = tmp_path / "vllm.yaml"
    path.write_text(
        "model: m\nmax-num-seqs: 64\nblock-size: 32\nenable-prefix-caching: false\n"
        "no-enable-chunked-prefill: true\nserved-model-name: [a, b]\n"
        "speculative-config: {method: mtp, num_speculative_tokens: 2}\n"
    )
    found = read(f"vllm serve --config {path} --block-size 64")
    assert found.model == "m"
    expected = {"max_num_seqs": 64, "block_size": 64, "enable_prefix_caching": False,
                "enable_chunked_prefill": False, "speculative_config": DRAFTS}  # fmt: skip
    assert expected.items() <= found.scheduler.items()
    path.write_text("model-path: m\ntp: 8\ndisable-radix-cache: false\npage-size: 16\n")
    found = read(f"python -m sglang.launch_server --config={path} --page-size 32")
    assert (found.model, found.parallel["tp"], found.unknown) == ("m", 8, ())
    assert found.scheduler["page_size"] == 32
    assert "disable_radix_cache" not in found.scheduler


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ("--config /none/x.yaml", "/none/x.yaml: no such file"),
        ("--config", "--server: --config: has no value"),
        ("--speculative-config.method", "--speculative-config.method: has no value"),
        ("--max-num-seqs --port 1", "--max-num-seqs: has no value"),
        ("--enable-prefix-caching=true", "--enable-prefix-caching: takes no value, got true"),
        ("--trust-remote-code true", "true: belongs to no flag"),
        ("--task embed", "--task embed: only generation is simulated"),
        ("-tp $TP", "--tensor-parallel-size: must be a whole number of at least 1, got $TP"),
    ],
)
def test_what_is_wrong_is_one_line(flags, reason):
    with pytest.raises(InputError) as caught:
        read(f"vllm serve m {flags}")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "version", "note"),
    [
        ("docker run vllm/vllm-openai:v0.29.1 m", "0.19.0", "vLLM 0.29.1: rules are those of 0.19"),
        ("docker run vllm/vllm-openai:v0.33.0 m", "0.33.0", ""),
        ("docker run lmsysorg/sglang:v0.5.15-cu129 sglang serve m", "0.5.17", "SGLang 0.5.15: rul"),
        ("docker run x/sglang:0.5.9 sglang serve m", "0.5.9", ""),
    ],
)
def test_the_image_says_the_version(text, version, note):
    """Rules of another version are never taken silently."""
    found = read(text)
    assert found.scheduler["version"] == version
    assert found.host == ("sglang-0.5.9" if version == "0.5.9" else found.host)
    said = [each for each in found.notes if "rules are those of" in each]
    assert (not said and not note) or said[0].startswith(note)


def test_environment_variables():
    """Other programs' change nothing; an engine's are known, or named."""
    found = read("VLLM_USE_DEEP_GEMM=1 VLLM_LOGGING_LEVEL=DEBUG VLLM_NEW=2 HF_TOKEN=x vllm serve m")
    assert "VLLM_USE_DEEP_GEMM=1: changes only how long steps take" in " ".join(found.notes)
    assert found.ignored == ("VLLM_LOGGING_LEVEL", "HF_TOKEN")
    assert found.unknown == ("VLLM_NEW",)


def test_connectors_of_a_server():
    """Of several connectors the one that sends KV is the role; KV in other memory is named."""
    several = [{"kv_connector": "OffloadingConnector", "kv_role": "kv_both"},
               {"kv_connector": "NixlConnector", "kv_role": "kv_producer"}]  # fmt: skip
    config = {"kv_connector": "MultiConnector", "kv_role": "kv_producer",
              "kv_connector_extra_config": {"connectors": several}}  # fmt: skip
    with pytest.raises(InputError, match="launches a prefill server"):
        read(f"vllm serve m --kv-transfer-config '{json.dumps(config)}'")
    store = '{"kv_connector": "MooncakeStoreConnector", "kv_role": "kv_both"}'
    found = read(f"vllm serve m --kv-transfer-config '{store}'")
    assert "--kv-transfer-config: MooncakeStoreConnector is not simulated" in found.notes

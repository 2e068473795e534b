"""A scenario from command lines, as a user pastes them."""

import json

import pytest
import yaml

from sim.cli import main
from sim.scenario.load import load_scenario

SERVER = "python -m sglang.launch_server --model-path Qwen/Qwen3-32B --tp 4 --port 1"
CLIENT = (
    "python3 -m sglang.bench_serving --backend sglang --dataset-name random --random-input 1000"
    " --random-output 1000 --num-prompts 500 --seed 1 --max-concurrency 64 --lora-name x"
)


@pytest.fixture
def paste(tmp_path, capsys):
    """Imports command lines; returns the exit code, the scenario and stderr."""

    def imported(command, *servers, hardware="h100-sxm"):
        out = tmp_path / "mine"
        lines = [part for server in servers or (SERVER,) for part in ("--server", server)]
        code = main(["import", "--command", command, *lines, "--hardware", hardware,
                     "--out", str(out)])  # fmt: skip
        path = out / "scenario.yaml"
        data = yaml.safe_load(path.read_text()) if path.exists() else None
        if data is not None:
            load_scenario(path)
        return code, data, capsys.readouterr().err

    return imported


def test_sglang_commands_become_a_scenario(paste):
    """Traffic from the client, everything else from the server; the rest is named on stderr."""
    code, data, err = paste(CLIENT)
    assert code == 0
    assert data["workload"] == {
        "kind": "bench", "client": "sglang", "num_prompts": 500, "input_len": 1000,
        "output_len": 1000, "range_ratio": 0.0, "seed": 1, "warmup_requests": 1,
        "max_concurrency": 64,
    }  # fmt: skip
    assert data["model"] == "Qwen/Qwen3-32B"
    assert data["latency"] == {
        "kind": "aiconfigurator", "system": "h100_sxm", "backend": "sglang", "tp": 4,
    }  # fmt: skip
    assert data["scheduler"]["chunked_prefill_size"] == 8192
    assert "--command: not known, so not simulated: --lora-name x" in err
    assert "--server: changes nothing here: --port" in err


@pytest.mark.parametrize(
    ("model", "flags", "pools", "note"),
    [
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "", {"max_mamba_cache_size": "model"}, ""),
        (
            "Qwen/Qwen3-Next-80B-A3B-Instruct",
            "--mamba-ssm-dtype bfloat16 --max-mamba-cache-size 500",
            {"mamba_ssm_dtype": "bfloat16", "max_mamba_cache_size": 500},
            "",
        ),
        ("Qwen/Qwen3.5-27B", "--pp 2", {}, "the pool of states of Qwen/"),
        (
            "openai/gpt-oss-120b",
            "--swa-full-tokens-ratio 0.5",
            {"sliding_window": "model", "swa_full_tokens_ratio": 0.5},
            "",
        ),
        ("openai/gpt-oss-120b", "--pp 2", {}, "the pool of layers with a sliding window of"),
        ("google/gemma-3-27b-it", "", {}, ""),
    ],
)
def test_sglang_model_brings_the_pools_of_its_layers(paste, model, flags, pools, note):
    """As SGLang makes them without a flag. Gemma keeps all tokens in all layers."""
    code, data, err = paste(CLIENT, f"{SERVER.replace('Qwen/Qwen3-32B', model)} {flags}")
    keys = ("sliding_window", "swa_full_tokens_ratio", "max_mamba_cache_size", "mamba_ssm_dtype")
    found = {key: data["scheduler"][key] for key in keys if key in data["scheduler"]}
    assert (code, found) == (0, pools)
    assert note in err
    assert bool(note) == ("is not simulated with the other flags" in err)


@pytest.mark.parametrize(
    ("model", "flags", "groups", "note"),
    [
        ("openai/gpt-oss-120b", "", "model", ""),
        ("google/gemma-3-27b-it", "", "model", ""),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "-tp 4", "model", ""),
        ("openai/gpt-oss-120b", "--disable-hybrid-kv-cache-manager", None, ""),
        ("Qwen/Qwen3-32B", "", None, ""),
        ("openai/gpt-oss-120b", "-pp 2", None, "windows of openai/gpt-oss-120b are not simulated"),
        ("openai/gpt-oss-120b", "-pp 2 --num-gpu-blocks-override 9000", "model", ""),
        ("Qwen/Qwen3.5-27B", "-tp 4", None, "the states of Qwen/Qwen3.5-27B are not simulated"),
    ],
)
def test_vllm_model_brings_the_groups_of_its_layers(paste, model, flags, groups, note):
    """As vLLM makes them without a flag; what is left out is said."""
    code, data, err = paste(CLIENT, f"vllm serve {model} {flags}")
    assert (code, data["scheduler"].get("kv_cache_groups")) == (0, groups)
    assert note in err
    assert bool(note) == ("are not simulated" in err)


def test_drafts_and_other_objects_of_a_command_are_simulated(paste):
    """They are plain values; without drafts there is no acceptance."""
    drafts = {"method": "ngram", "num_speculative_tokens": 3}
    _, data, _ = paste(CLIENT, f"vllm serve Qwen/Qwen3-32B -tp 2 -sc '{json.dumps(drafts)}'")
    assert data["scheduler"]["speculative_config"] == drafts
    assert data["acceptance"] == {"rate": 0.7}
    slru = "--radix-eviction-policy slru --radix-eviction-policy-config"
    _, data, _ = paste(CLIENT, f"""{SERVER} {slru} '{{"protected_threshold": 3}}'""")
    assert data["scheduler"]["radix_eviction_policy_config"] == {"protected_threshold": 3}
    _, data, _ = paste(CLIENT, f"{SERVER} --speculative-algorithm UNO")
    assert "acceptance" not in data


def test_what_is_written_can_be_run(paste, tmp_path):
    """A model without measured operators gets step times of kind roofline, also in pools."""
    pytest.importorskip("aiconfigurator_core", reason="pip install -e '.[aiconfigurator]'")
    gemma = SERVER.replace("Qwen/Qwen3-32B", "google/gemma-3-27b-it")
    _, data, err = paste(CLIENT, gemma)
    assert (data["hardware"], data["latency"]) == ("h100-sxm", {"kind": "roofline", "tp": 4})
    assert "kind roofline, because those of measured operators are missing: latency: model" in err
    roles = [f"{gemma} --disaggregation-mode {role}" for role in ("prefill", "decode")]
    _, data, _ = paste(CLIENT, *roles)
    assert [pool["latency"]["kind"] for pool in data["pools"].values()] == ["roofline"] * 2
    _, data, _ = paste(CLIENT, SERVER, hardware="mi300x")
    assert (data["hardware"], data["latency"]["kind"]) == ("mi300x", "roofline")


@pytest.mark.parametrize(
    ("server", "hardware", "reason"),
    [
        ("vllm serve x/unheard-of", "h100_sxm", "--server: model: unknown model 'x/unheard-of'"),
        ("vllm serve deepseek-ai/DeepSeek-R1", "h100_sxm", "does not fit: its weights take 626.9"),
        (f"{SERVER} --dp 2 --enable-dp-attention", "tpu", "--server: latency.system: unknown"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_reason(paste, server, hardware, reason):
    pytest.importorskip("aiconfigurator_core", reason="pip install -e '.[aiconfigurator]'")
    code, data, err = paste(CLIENT, server, hardware=hardware)
    assert (code, data) == (2, None)
    assert reason in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("model", "known", "formats"),
    [
        ("RedHatAI/Qwen3-32B-FP8-dynamic", "Qwen/Qwen3-32B", {"gemm": "fp8", "moe": "fp8_block"}),
        ("x/qwen3-32b", "Qwen/Qwen3-32B", None),
    ],
)
def test_a_variant_of_a_known_model(paste, model, known, formats):
    _, data, err = paste(CLIENT, SERVER.replace("Qwen/Qwen3-32B", model))
    assert (data["model"], data["latency"].get("quantization")) == (known, formats)
    assert f"model {model} is not known: {known} is taken" in err


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            (
                "vllm bench serve --model m --input-len 1024 --request-rate 4 --burstiness 0.5"
                " --num-prompts 9 --goodput ttft:500 e2el:9000"
            ),
            {"client": "vllm", "output_len": 128, "request_rate": 4, "burstiness": 0.5, "seed": 0},
        ),
        (
            (
                "python utils/bench_serving/benchmark_serving.py --model m --dataset-name random"
                " --random-input-len 1024 --random-output-len 1024 --random-range-ratio 0.8"
                " --num-prompts 40 --max-concurrency 4 --request-rate inf --num-warmups 8"
            ),
            {"client": "inferencex", "range_ratio": 0.8, "warmup_requests": 8, "num_prompts": 40},
        ),
        (
            (
                "aiperf profile -m m --isl 1024 --osl 128 --osl-stddev 5 --concurrency 16"
                " --warmup-request-count 32 --random-seed 100"
            ),
            {"client": "aiperf", "num_prompts": 32, "output_len_stddev": 5, "seed": 100},
        ),
    ],
)
def test_other_clients(paste, command, expected):
    """Flags that are not given have the program's defaults."""
    code, data, _ = paste(command, "vllm serve Qwen/Qwen3-8B")
    assert code == 0
    assert expected.items() <= data["workload"].items()
    if "goodput" in command:
        assert data["slo"] == {"ttft_ms": 500.0, "e2e_latency_ms": 9000.0}


def test_seed_that_depends_on_the_version_is_said(paste):
    """SGLang 0.5.23 has another default than earlier versions."""
    _, data, err = paste(CLIENT.replace("--seed 1", ""))
    assert data["workload"]["seed"] == 42
    assert "until 0.5.9 it was 1" in err


@pytest.mark.parametrize(
    ("command", "server", "reason"),
    [
        ("locust run", SERVER, "--command: is of none of the known clients"),
        (CLIENT, "ollama serve", "--server: is no command that launches SGLang or vLLM"),
        (CLIENT, "python -m sglang.launch_server --tp 2", "--server: names no model"),
        (CLIENT, SERVER + " --ep 0", "--server: --ep-size: must be a whole number"),
        ("vllm bench serve --num-prompts x", SERVER, "--command: num_prompts: "),
        ("vllm bench serve --dataset-name sonnet", SERVER, "--dataset-name sonnet: only"),
        ("aiperf profile --isl 5", SERVER, "--command: --osl: missing"),
        ("vllm bench serve --goodput x:1", SERVER, "--command: --goodput x:1: must be"),
    ],
)
def test_bad_command_lines_are_one_line(paste, command, server, reason):
    """Exit code 2, nothing written."""
    code, data, err = paste(command, server)
    assert (code, data) == (2, None)
    assert reason in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "--command: is needed without SOURCE"),
        (["--command", CLIENT], "--hardware: is needed with --command"),
        (["results.json", "--server", SERVER], "--server: goes without SOURCE"),
    ],
)
def test_options_that_do_not_go_together(tmp_path, capsys, arguments, reason):
    """Results, or command lines."""
    assert main(["import", *arguments, "--out", str(tmp_path / "out")]) == 2
    assert reason in capsys.readouterr().err


VLLM_SIDE = (
    "vllm serve Qwen/Qwen3-32B -tp 4 --kv-transfer-config"
    """ '{"kv_connector": "NixlConnector", "kv_role": "ROLE"}'"""
)


@pytest.mark.parametrize(
    ("servers", "family"),
    [
        ((f"{SERVER} --disaggregation-mode decode", f"{SERVER} --disaggregation-mode prefill"),
         "sglang"),
        ((VLLM_SIDE.replace("ROLE", "kv_consumer"), VLLM_SIDE.replace("ROLE", "kv_producer")),
         "vllm"),
        ((VLLM_SIDE.replace("ROLE", "kv_both"),) * 2, "vllm"),
    ],
)  # fmt: skip
def test_prefill_and_decode_servers_become_pools(paste, servers, family):
    code, data, err = paste(CLIENT, *servers)
    assert code == 0
    assert {name: pool["role"] for name, pool in data["pools"].items()} == {
        "prefill": "prefill", "decode": "decode",
    }  # fmt: skip
    for pool in data["pools"].values():
        assert (pool["scheduler"]["family"], pool["latency"]["tp"]) == (family, 4)
    assert data["transfer"] == {"bandwidth_gb_s": 200}
    assert ("is taken for a prefill server" in err) == ("kv_both" in servers[0])


@pytest.mark.parametrize(
    ("roles", "names"),
    [
        (("kv_both", "kv_producer"), ["decode", "prefill"]),
        (("kv_consumer", "kv_both"), ["decode", "prefill"]),
        (("kv_producer", "kv_both", "kv_consumer"), ["prefill", "decode", "decode-2"]),
        (("kv_both", "kv_both", "kv_both"), ["prefill", "decode", "decode-2"]),
    ],
)
def test_kv_both_is_the_role_that_others_leave(paste, roles, names):
    """And stderr says of each such server what it is taken for."""
    code, data, err = paste(CLIENT, *(VLLM_SIDE.replace("ROLE", role) for role in roles))
    assert (code, list(data["pools"])) == (0, names)
    for role, name in zip(roles, names, strict=True):
        taken = f"this one is taken for a {data['pools'][name]['role']} server"
        is_said = any(f"servetwin: {name}: " in line and taken in line for line in err.splitlines())
        assert is_said == (role == "kv_both")


def test_servers_that_are_not_alike_become_pools(paste):
    code, data, _err = paste(CLIENT, SERVER, f"{SERVER} --dp-size 2 --max-running-requests 100")
    assert code == 0
    assert [pool.get("replicas") for pool in data["pools"].values()] == [None, 2]
    assert list(data["pools"]) == ["both", "both-2"]
    assert "transfer" not in data


@pytest.mark.parametrize(
    ("servers", "reason"),
    [
        ((f"{SERVER} --disaggregation-mode decode",),
         "launches a decode server, which needs servers of the other role"),
        ((VLLM_SIDE.replace("ROLE", "kv_both"),),
         "launches a prefill or decode server, which needs servers of the other role"),
        ((f"{SERVER} --disaggregation-mode prefill",) * 2,
         "launches a prefill server, which needs servers of the other role"),
        ((f"{SERVER} --disaggregation-mode prefill", SERVER),
         "a prefill server does not go with one that does both: give the role of each"),
        ((VLLM_SIDE.replace("ROLE", "kv_both"), VLLM_SIDE.partition(" --kv")[0]),
         "a prefill or decode server does not go with one that does both"),
        ((f"{SERVER} --disaggregation-mode mine",), "mine is no role of SGLang's"),
        ((VLLM_SIDE.replace("ROLE", "mine"),), "kv_role mine is unknown"),
        ((SERVER, SERVER.replace("32B", "8B")),
         "the servers have different models: Qwen/Qwen3-32B and Qwen/Qwen3-8B"),
    ],
)  # fmt: skip
def test_servers_that_do_not_belong_together_are_named(paste, servers, reason):
    code, data, err = paste(CLIENT, *servers)
    assert (code, data) == (2, None)
    assert err.startswith("simulate: --server: ")
    assert reason in err
    assert err.count("\n") == 1


def test_kv_of_a_server_in_other_memory_is_no_role(paste):
    """A connector that offloads KV serves whole requests; it is named as not simulated."""
    server = VLLM_SIDE.replace("ROLE", "kv_both").replace("NixlConnector", "OffloadingConnector")
    code, data, err = paste(CLIENT, server)
    assert code == 0
    assert "pools" not in data
    assert "--kv-transfer-config: OffloadingConnector is not simulated" in err


def test_a_role_that_is_no_text_is_refused(paste):
    code, data, err = paste(CLIENT, VLLM_SIDE.replace('"ROLE"', '["kv_both"]'))
    assert (code, data) == (2, None)
    assert "is unknown" in err


GPT_OSS = "python -m sglang.launch_server --model-path openai/gpt-oss-120b"
DRAFTING = "--speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk 1"


@pytest.mark.parametrize("roles", [("",), ("prefill", "decode")])
def test_servers_that_speculate_get_an_acceptance_to_replace(tmp_path, capsys, roles):
    """Also on prefill and decode servers with windows; the scenario is simulated as it is."""
    client = "python -m sglang.bench_serving --dataset-name random --num-prompts 8"
    lengths = "--random-input-len 300 --random-output-len 20 --request-rate 10 --seed 1"
    servers = []
    for role in roles:
        mode = f"--disaggregation-mode {role}" if role else ""
        servers += ["--server", f"{GPT_OSS} {mode} {DRAFTING} --speculative-num-draft-tokens 4"]
    out = tmp_path / "out"
    command = ["--command", f"{client} {lengths}", *servers]
    main(["import", *command, "--hardware", "h100_sxm", "--out", str(out)])
    assert "PLACEHOLDER: the command lines do not say how many draft" in capsys.readouterr().err
    scenario = load_scenario(out / "scenario.yaml").scenario
    assert scenario.acceptance.rate == 0.7
    assert bool(scenario.pools) == (len(roles) > 1)
    pytest.importorskip("aiconfigurator_core", reason="pip install -e '.[aiconfigurator]'")
    main(["run", str(out / "scenario.yaml")])
    assert "accepted draft tokens" in capsys.readouterr().out


@pytest.mark.parametrize(
    "option",
    [
        ("--from", "vllm-bench"),
        ("--template", "t.yaml"),
        ("--line", "3"),
        ("--draw-arrivals", "0"),
    ],
)
def test_options_of_results_are_refused_with_command_lines(tmp_path, capsys, option):
    out = tmp_path / "mine"
    words = ["--command", CLIENT, "--server", SERVER, "--hardware", "h100-sxm", "--out", str(out)]
    assert main(["import", *words, *option]) == 2
    assert capsys.readouterr() == ("", f"simulate: {option[0]}: goes with SOURCE only\n")
    assert not out.exists()

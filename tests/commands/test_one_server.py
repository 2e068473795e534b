"""`simulate run` without a file: options name one server and the traffic of a benchmark."""

import json
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import yaml

from sim.latency.aiconfigurator import package

# An MI300X has no measured operators, so that no package is needed.
OPTIONS = {
    "--model": "Qwen/Qwen3-8B", "--hardware": "mi300x", "--traffic": "400/20@5",
    "--num-requests": "60",
}  # fmt: skip
HEAD = "============ Serving Benchmark Result ============"


def asked(**changes):
    given = OPTIONS | {f"--{name.replace('_', '-')}": text for name, text in changes.items()}
    return [part for option, text in given.items() if text for part in (option, text)]


def figures(text):
    """The lines of the block by their labels."""
    lines = text[text.index(HEAD) :].splitlines()
    pairs = (line.rpartition(":") for line in lines if ":   " in line)
    return {label: float(value) for label, _, value in pairs}


def test_run_without_a_file_prints_what_vllm_bench_serve_prints(simulate):
    """Also throughput by user and GPU; the lengths are those given, all requests are answered."""
    ended = simulate("run", *asked(tp="2"))
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[1].startswith("python -m sglang.launch_server --model-path Qwen/Qwen3-8B --")
    assert lines[1].endswith(" --tp-size 2")
    assert lines[2] == HEAD
    assert lines[-1] == "step times: data sheets: a floor, nothing is measured"
    found = figures(ended.out)
    assert found["Successful requests"] == 60
    assert found["Failed requests"] == 0
    assert found["Request rate configured (RPS)"] == 5
    assert found["Total input tokens"] == 60 * 400
    assert found["Total generated tokens"] == 60 * 20
    for name in ("TTFT", "TPOT", "ITL"):
        assert 0 < found[f"Mean {name} (ms)"] <= found[f"P99 {name} (ms)"]
    per_user = found["Output tok/s per user (1 / mean TPOT)"]
    assert per_user == pytest.approx(1000 / found["Mean TPOT (ms)"], rel=0.01)
    assert found["GPUs"] == 2
    seconds = json.loads(simulate("run", *asked(tp="2"), "--format", "json").out)["duration"]
    assert found["Output tok/s per GPU"] == pytest.approx(1200 / seconds / 2, rel=0.01)
    assert found["Total tok/s per GPU"] == pytest.approx(60 * 420 / seconds / 2, rel=0.01)


def test_run_without_a_file_sends_as_many_at_a_time_as_asked(simulate):
    """A closed loop; with both, neither limit is exceeded."""
    found = figures(simulate("run", *asked(traffic="400/20x4")).out)
    assert found["Maximum request concurrency"] == 4
    closed = json.loads(simulate("run", *asked(traffic="400/20x4"), "--format", "json").out)
    assert closed["concurrency"] == pytest.approx(4, abs=0.1)
    assert "Request rate configured (RPS)" not in found
    both = figures(simulate("run", *asked(traffic="400/20x4@2.5")).out)
    assert both["Maximum request concurrency"] == 4
    assert both["Request rate configured (RPS)"] == 2.5
    assert both["Benchmark duration (s)"] > found["Benchmark duration (s)"]


def test_run_without_a_file_says_that_it_is_saturated(simulate):
    ended = simulate("run", *asked(traffic="4000/500@50", num_requests="200"))
    assert "\nsaturated: " in ended.out
    assert "saturated" not in simulate("run", *asked()).out


def test_run_with_out_writes_a_file_that_runs_the_same(simulate):
    """What `--set` says is in it."""
    ended = simulate("run", *asked(), "--set", "seed=4", "--out", "out")
    assert yaml.safe_load(Path("out/scenario.yaml").read_text(encoding="utf-8"))["seed"] == 4
    again = simulate("run", "out/scenario.yaml", "--format", "vllm-bench")
    assert again.out == ended.out[ended.out.index(HEAD) :]


@pytest.mark.parametrize(
    ("server", "scheduler", "host"),
    [
        (
            "sglang",
            {"chunked_prefill_size": 16_384, "max_running_requests": 2048},
            "sglang-0.5.10",
        ),
        ("vllm", {"max_num_batched_tokens": 16_384, "max_num_seqs": 1024}, "vllm-async"),
    ],
)
def test_server_has_the_defaults_of_its_engine_on_the_gpu(simulate, server, scheduler, host):
    """Of the newest version, with prefix caching, as the sections' own defaults have it."""
    simulate("run", *asked(server=server), "--out", "out")
    written = yaml.safe_load(Path("out/scenario.yaml").read_text(encoding="utf-8"))
    assert written["scheduler"] == {"family": server, **scheduler}
    assert written["host"] == host


def test_fp8_weights_are_simulated_and_launched(simulate):
    """Steps are faster, and the launch command quantises the checkpoint."""
    pytest.importorskip("aiconfigurator_core.sdk.engine")
    ended = simulate("run", *asked(hardware="h100_sxm", weights="fp8"))
    assert ended.out.splitlines()[1].endswith(" --quantization fp8")
    own = simulate("run", *asked(hardware="h100_sxm"))
    assert "--quantization" not in own.out
    assert figures(ended.out)["Mean TPOT (ms)"] < figures(own.out)["Mean TPOT (ms)"]


def test_run_without_measured_operators_says_what_it_takes(simulate):
    """The package has none of the model's: the data sheet is taken."""
    pytest.importorskip("aiconfigurator_core.sdk.engine")
    ended = simulate("run", *asked(model="google/gemma-3-4b-it", hardware="h100_sxm"))
    assert ended.code == 0
    assert ended.err.startswith(
        "servetwin: step times are a floor, from the data sheet of h100-sxm: model google/gemma"
    )
    assert ended.out.endswith("step times: data sheets: a floor, nothing is measured\n")


def test_run_without_the_package_says_how_to_install_it(simulate, monkeypatch):
    def absent(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(package, "version", absent)
    package.open_engine.cache_clear()
    ended = simulate("run", *asked(hardware="h100_sxm"))
    assert ended.code == 0
    (line,) = ended.err.splitlines()
    assert "needs the package aiconfigurator-core: " in line
    assert HEAD in ended.out


TRAFFIC = (
    "--traffic: must be PROMPT/ANSWER@RATE, such as 4000/500@6, or PROMPT/ANSWERxCLIENTS, such as"
    " 4000/500x32, got "
)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"model": ""}, "--model: is needed without FILE"),
        ({"hardware": ""}, "--hardware: is needed without FILE"),
        ({"traffic": ""}, "--traffic: is needed without FILE"),
        ({"traffic": "400/20"}, f"{TRAFFIC}400/20"),
        ({"traffic": "400@20"}, f"{TRAFFIC}400@20"),
        ({"traffic": "4e2/20@3"}, f"{TRAFFIC}4e2/20@3"),
        ({"traffic": "٤٠٠/20@3"}, f"{TRAFFIC}٤٠٠/20@3"),
        (
            {"traffic": "400/20@0"},
            "--traffic: workload.request_rate: must be greater than 0, got 0.0",
        ),
        ({"traffic": "400/0@1"}, "--traffic: workload.output_len: must be at least 1, got 0"),
        ({"server": "tgi"}, "--server: unknown family 'tgi' (known: sglang, vllm)"),
        ({"tp": "3"}, "--tp: 3 does not divide the 32 attention heads of Qwen/Qwen3-8B"),
        (
            {"weights": "fp8"},
            "--weights: mi300x has no measured operators, so the model's own format is used",
        ),
    ],
)
def test_run_names_the_option_that_is_wrong(refused_bare, changes, line):
    """Nothing is written."""
    assert refused_bare("run", *asked(**changes), "--out", "out") == line


def test_run_takes_a_file_or_options(refused_bare, scenario):
    line = refused_bare("run", scenario, "--hardware", "mi300x")
    assert line == "--hardware: goes without FILE; the key in FILE is hardware"


def test_any_run_is_printed_as_vllm_bench_serve_would(simulate, scenario):
    """Without a benchmark's client the clock starts at the first arrival; the SLO is counted."""
    summary = json.loads(simulate("run", scenario, "--format", "json").out)
    ended = simulate("run", scenario, "--format", "vllm-bench")
    found = figures(ended.out)
    assert ended.out.startswith(HEAD)
    assert found["Successful requests"] == summary["completed"] == 40
    assert found["Total input tokens"] == summary["total_input_tokens"]
    for name in ("mean_ttft_ms", "p99_ttft_ms", "median_tpot_ms", "mean_itl_ms"):
        statistic, latency, _ = name.split("_")
        label = f"{statistic.capitalize()} {latency.upper()} (ms)"
        assert found[label] == pytest.approx(summary[name], abs=0.005)
    assert "Request goodput (req/s)" in found
    assert "client_figures" not in summary


def test_other_clients_runs_are_printed_so_too(simulate, scenario):
    """The block of `vllm bench serve` is printed for any traffic."""
    bench = "workload={kind: bench, client: sglang, num_prompts: 20, input_len: 90, output_len: 5}"
    ended = simulate("run", scenario, "--set", bench, "--format", "vllm-bench")
    assert "\n---------------Inter-token Latency----------------\n" in ended.out
    assert "What sglang.bench_serving prints" not in ended.out


def test_run_of_no_answered_request_prints_its_block(simulate, scenario):
    """All prompts are longer than the server takes."""
    bench = "workload={kind: bench, client: vllm, num_prompts: 3, input_len: 9000, output_len: 5}"
    ended = simulate("run", scenario, "--set", bench, "--format", "vllm-bench")
    assert ended.code == 0
    assert "Failed requests:                         3" in ended.out

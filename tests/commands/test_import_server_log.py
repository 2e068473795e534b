"""`simulate import` makes a scenario of the server that wrote a log."""

import gzip
import json
from pathlib import Path

import pytest
import yaml

from sim.workload.traces.servetwin import read_servetwin
from tests.server_log.test_vllm_log import MEASURED
from tests.workload.results.test_sglang_log import finished, out, received

SGLANG_ARGS = {
    "model_path": "/models/Qwen3-32B",
    "tp_size": 2,
    "dp_size": 1,
    "page_size": 16,
    "schedule_policy": "lpm",
    "chunked_prefill_size": 1024,
    "max_running_requests": None,
    "context_length": None,
    "mem_fraction_static": 0.86,
    "enable_hierarchical_cache": False,
    "hicache_ratio": 2.0,
    "decode_log_interval": 2,
    "trust_remote_code": True,
    "disaggregation_mode": "null",
}
LIMITS = (
    "[2026-06-11 04:22:42 TP0] max_total_num_tokens=50000, chunked_prefill_size=1024, "
    "max_prefill_tokens=16384, max_running_requests=64, context_len=4096, available_gpu_mem=9.1 GB"
)
READY = "[2026-06-11 04:30:00] The server is fired up and ready to roll!"


def sglang_args(**changed):
    fields = ", ".join(f"{key}={value!r}" for key, value in {**SGLANG_ARGS, **changed}.items())
    return f"[2026-06-11 04:11:07] server_args=ServerArgs({fields})"


def prefill(second, requests, tokens, cached=0, waiting=0):
    return (
        f"[2026-06-11 04:38:{second:02} TP0] Prefill batch, #new-seq: {requests}, #new-token: "
        f"{tokens}, #cached-token: {cached}, token usage: 0.05, #running-req: 4, #queue-req: "
        f"{waiting}, cuda graph: False, input throughput (token/s): 35.20"
    )


def decode(second, running):
    return (
        f"[2026-06-11 04:38:{second:02} TP0] Decode batch, #running-req: {running}, #token: 26823, "
        "token usage: 0.05, cuda graph: True, gen throughput (token/s): 1033.49, #queue-req: 0"
    )


def write_log(*lines, args=None):
    lines = [args or sglang_args(), LIMITS, prefill(1, 1, 7), READY, *lines]
    Path("server.log").write_text("\n".join(lines) + "\n", encoding="utf-8")


def scenario_of(ended, out="out"):
    assert ended.code == 0, ended.err
    return yaml.safe_load(Path(out, "scenario.yaml").read_text(encoding="utf-8"))


@pytest.fixture
def import_log(simulate):
    def run(*options, source="server.log"):
        return simulate("import", str(source), "--hardware", "h100_sxm", "--out", "out", *options)

    return run


def test_sglang_server_is_as_its_log_says(import_log):
    """Its settings, what it found for those not given, and the pool that it measured.

    A chunk of a prompt that fills the batch is the first request of the next batch.
    """
    write_log(
        prefill(10, 2, 700, cached=100), decode(10, 2), decode(11, 2),
        prefill(20, 1, 1024), prefill(20, 2, 576, waiting=1),
        '[2026-06-11 04:38:21] INFO:     127.0.0.1:1 - "POST /generate HTTP/1.1" 200 OK',
    )  # fmt: skip
    ended = import_log()
    data = scenario_of(ended)
    assert data["model"] == "Qwen/Qwen3-32B"
    assert data["latency"]["tp"] == 2
    scheduler = data["scheduler"]
    assert scheduler["family"] == "sglang"
    assert scheduler["max_total_tokens"] == 50_000
    assert scheduler["max_running_requests"] == 64
    assert scheduler["context_length"] == 4096
    assert (scheduler["page_size"], scheduler["schedule_policy"]) == (16, "lpm")
    assert "mem_fraction_static" not in scheduler
    assert "host_cache" not in ended.err
    assert not Path("out/measured.jsonl.gz").exists()
    rows = read_servetwin(Path("out/workload.jsonl.gz"), limit=None)
    # 400 each in the first batch; 800 each in the two batches that go together.
    assert [len(rows.prompts.prompt(place)) for place in range(4)] == [400, 400, 800, 800]
    # By the log's seconds, in which they are spread.
    assert (rows.arrival_ns // 10**8).tolist() == [0, 5, 100, 105]
    # 2 steps a line with 2 rows are 8 tokens, and the first token of each: 3 each.
    assert rows.output_tokens.tolist() == [3, 3, 3, 3]
    assert "1 of 4 began while others still waited; the log has 1 POST requests" in ended.err


def test_run_of_the_rebuilt_scenario(import_log, simulate):
    write_log(prefill(10, 2, 700), decode(10, 2), decode(11, 2))
    assert import_log().code == 0
    ended = simulate("run", "out/scenario.yaml")
    assert ended.code == 0
    assert "finished" in ended.out


def test_vllm_server_with_the_results_of_its_client(import_log):
    """The measured run lies beside the scenario, as for other results."""
    results = MEASURED.with_name("bench.json.gz")
    ended = import_log("--results", str(results), "--model", "llama-3.1-8b", source=MEASURED)
    data = scenario_of(ended)
    assert data["model"] == "llama-3.1-8b"
    assert data["scheduler"]["num_gpu_blocks_override"] == 462_944 // 16
    assert data["scheduler"]["max_model_len"] == 8192
    assert "gpu_memory_utilization" not in data["scheduler"]
    assert "vLLM 0.26.0: rules are those of" in ended.err
    assert len(gzip.decompress(Path("out/measured.jsonl.gz").read_bytes()).splitlines()) == 120
    assert "calibrate validate" in ended.out


def test_vllm_server_with_the_command_of_a_client(import_log):
    bench = (
        "vllm bench serve --dataset-name random --random-input-len 100 --random-output-len 10 "
        "--request-rate 5 --num-prompts 20"
    )
    data = scenario_of(import_log("--command", bench, "--model", "llama-3.1-8b", source=MEASURED))
    assert data["workload"]["kind"] == "bench"
    assert sorted(path.name for path in Path("out").iterdir()) == ["scenario.yaml"]


def test_traffic_that_the_log_does_not_tell_is_a_placeholder(import_log):
    ended = import_log("--model", "llama-3.1-8b", source=MEASURED)
    assert scenario_of(ended)["workload"]["kind"] == "synthetic"
    (line,) = [line for line in ended.err.splitlines() if "PLACEHOLDER" in line]
    assert "give --results FILE" in line


def test_vllm_traffic_is_rebuilt_from_lines_of_steps(import_log, simulate):
    def step(number, prompts, tokens, rows):
        return (
            f"INFO 11-27 09:34:{46 + number // 2} [loggers.py:182] Engine 000: Iteration({number}):"
            f" {prompts} context requests, {tokens} context tokens, {rows} generation requests,"
            f" {rows} generation tokens, iteration elapsed time: 0.05 ms,"
            " GPU KV cache usage: 0.2%"
        )

    lines = [
        "INFO 11-27 09:33:18 [api_utils.py:273] non-default args: {'model': 'Qwen/Qwen3-32B'}",
        "INFO 11-27 09:33:58 [a.py:1] Chunked prefill is enabled with max_num_batched_tokens=1000.",
        "INFO 11-27 09:34:16 [kv_cache_utils.py:2177] GPU KV cache size: 400,000 tokens",
        *(step(*each) for each in [(0, 1, 1000, 0), (1, 1, 200, 0), (2, 0, 0, 1), (3, 0, 0, 1)]),
        step(4, 0, 0, 0),
    ]
    Path("server.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    ended = import_log()
    assert scenario_of(ended)["workload"]["kind"] == "trace"
    rows = read_servetwin(Path("out/workload.jsonl.gz"), limit=None)
    # The first step is full and cuts the prompt.
    assert len(rows.prompts.prompt(0)) == 1200
    assert rows.output_tokens.tolist() == [3]
    assert "Rebuilt from the log's lines of steps." in ended.err
    assert "PLACEHOLDER" not in ended.err
    assert simulate("run", "out/scenario.yaml").code == 0


def test_blocks_of_groups_follow_from_the_measured_memory(import_log):
    """GPT-OSS's layers make two groups of 18; 16 tokens of 2 KiB in each are a block."""
    Path("server.log").write_text(
        "(EngineCore pid=1) INFO 06-05 05:33:41 [utils.py:1] non-default args: {'model': "
        "'/cache/models--openai--gpt-oss-120b/snapshots/b5c939de'}\n"
        "(EngineCore pid=1) INFO 06-05 05:51:38 [gpu_worker.py:1] Available KV cache memory: "
        "57.22 GiB\n"
        "(EngineCore pid=1) INFO 06-05 05:51:38 [kv_cache_utils.py:1] GPU KV cache size: 886,521 "
        "tokens\n",
        encoding="utf-8",
    )
    data = scenario_of(import_log())
    assert data["scheduler"]["kv_cache_groups"] == "model"
    assert data["scheduler"]["num_gpu_blocks_override"] == int(57.22 * 2**30) // (18 * 16 * 2048)


def test_ranks_of_dp_attention_share_what_is_given(import_log):
    """SGLang logs a rank's share of the chunk, and of the request slots."""
    write_log(
        args=sglang_args(
            tp_size=4, dp_size=4, enable_dp_attention=True, schedule_conservativeness=0.3,
            model_path="Qwen/Qwen3-30B-A3B", ep_size=4,
        )
    )  # fmt: skip
    data = scenario_of(import_log())
    assert (data["latency"]["tp"], data["latency"]["dp"]) == (1, 4)
    assert data["scheduler"]["chunked_prefill_size"] == 4096
    assert data["scheduler"]["max_running_requests"] == 256
    assert data["scheduler"]["schedule_conservativeness"] == 1.0


def test_accepted_draft_tokens_are_those_of_the_log(import_log):
    """Weighted by rows: 6 of 3.0 tokens and 2 of 1.0 are 2.5 in the mean."""
    drafts = {
        "speculative_algorithm": "EAGLE", "speculative_num_steps": 3, "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
    }  # fmt: skip
    lines = [
        decode(second, rows).replace("cuda graph", f"accept len: {length}, cuda graph")
        for second, rows, length in ((10, 6, 3.0), (11, 2, 1.0))
    ]
    write_log(prefill(10, 2, 700), *lines, args=sglang_args(**drafts))
    assert scenario_of(import_log())["acceptance"] == {"mean_length": 2.5}
    write_log(prefill(10, 2, 700), decode(10, 2), args=sglang_args(**drafts))
    ended = import_log()
    assert scenario_of(ended)["acceptance"] == {"rate": 0.7}
    assert "PLACEHOLDER: this log does not say how many draft tokens" in ended.err


def test_log_that_is_not_all_utf_8_is_recognised(import_log):
    write_log(prefill(10, 2, 700), decode(10, 2))
    path = Path("server.log")
    path.write_bytes(b"\xff\xfe \x00\n" + path.read_bytes())
    assert import_log().code == 0


def test_same_log_gives_the_same_bytes(import_log):
    write_log(prefill(10, 2, 700), decode(10, 2))
    assert import_log().code == 0
    first = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    assert import_log().code == 0
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == first


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--template", "server.log"), "--template: does not go with a server's log"),
        (("--server", "vllm serve x"), "--server: goes without SOURCE"),
        (("--line", "1"), "--line: goes with --results only"),
        (("--model", "nobody/nothing"), "--model: model nobody/nothing is not known"),
        (("--results", "missing.json"), "missing.json: cannot be read"),
        (("--from", "aiperf"), "--hardware: goes without SOURCE, or with a server's log"),
    ],
)
def test_wrong_options_are_named(import_log, options, reason):
    write_log(prefill(10, 2, 700))
    ended = import_log(*options)
    assert ended.code == 2
    assert reason in ended.err
    assert len(ended.err.splitlines()) == 1
    assert not Path("out").exists()


def test_logs_that_do_not_say_enough_are_refused(simulate, import_log):
    write_log(args=sglang_args(model_path="/models/my-own"))
    assert simulate("import", "server.log", "--out", "out").err == (
        "simulate: server.log: --hardware: is needed: a log does not name the GPU\n"
    )
    refused = "simulate: server.log: model /models/my-own is not known: give it with --model"
    assert import_log().err.startswith(refused)
    write_log(args=sglang_args(disaggregation_mode="prefill"))
    assert import_log().err.startswith("simulate: server.log: is of a prefill server, which needs")
    write_log(args=sglang_args(is_embedding=True))
    assert import_log().err.startswith("simulate: server.log: --is-embedding: cannot be simulated")
    Path("server.log").write_text(decode(1, 2) + "\n", encoding="utf-8")
    assert import_log().err.startswith("simulate: server.log: has no line of the server's settings")


def test_rotated_log_gives_the_scenario_of_the_whole(simulate, import_log):
    write_log(prefill(10, 2, 700), decode(10, 2), prefill(50, 3, 900), decode(51, 3))
    assert import_log().code == 0
    whole = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    lines = Path("server.log").read_text(encoding="utf-8").splitlines(keepends=True)
    Path("server.log").write_text("".join(lines[6:]), encoding="utf-8")
    Path("server.log.1.gz").write_bytes(gzip.compress("".join(lines[:6]).encode()))
    files = ("server.log", "server.log.1.gz")
    ended = simulate("import", *files, "--hardware", "h100_sxm", "--out", "out")
    assert ended.code == 0, ended.err
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == whole


def test_logs_of_a_fleet_are_one_scenario_of_all_its_servers(simulate):
    """Requests by the times of all logs; the smallest of the measured pools."""
    sources = []
    for number, (second, pool) in enumerate([(10, 50_000), (12, 48_000), (11, 49_000)]):
        write_log(prefill(second, 2, 700), decode(second, 2), prefill(second + 8, 1, 90 + number))
        text = Path("server.log").read_text(encoding="utf-8")
        sources.append(f"{number}.log")
        text = text.replace("max_total_num_tokens=50000", f"max_total_num_tokens={pool}")
        Path(sources[-1]).write_text(text, encoding="utf-8")
    options = ("--fleet", "--hardware", "h100_sxm", "--out", "out")
    ended = simulate("import", *sources, *options)
    data = scenario_of(ended)
    assert data["replicas"] == 3
    assert data["scheduler"]["max_total_tokens"] == 48_000
    rows = read_servetwin(Path("out/workload.jsonl.gz"), limit=None)
    lengths = [len(rows.prompts.prompt(place)) for place in range(9)]
    assert lengths == [350] * 6 + [90, 92, 91]
    assert (rows.arrival_ns // 10**9).tolist() == [0, 0, 1, 1, 2, 2, 8, 9, 10]
    assert ended.out.splitlines()[0].split() == ["servers", "3"]
    assert "0.log: Rebuilt from the log." in ended.err
    assert "set router" in ended.err
    run = simulate("run", "out/scenario.yaml", "--format", "json")
    assert json.loads(run.out)["completed"] == 9


def test_servers_of_a_fleet_with_other_settings_are_refused(simulate):
    write_log(prefill(10, 2, 700))
    Path("server.log").rename("0.log")
    write_log(prefill(10, 2, 700), args=sglang_args(schedule_policy="fcfs"))
    options = ("--fleet", "--hardware", "h100_sxm", "--out", "out")
    assert simulate("import", "0.log", "server.log", *options).err == (
        "simulate: server.log: its scheduler is another than that of 0.log; the servers of a fleet"
        " must be equal\n"
    )
    assert not Path("out").exists()
    Path("aiperf.jsonl").write_text("{}\n", encoding="utf-8")
    ended = simulate("import", "aiperf.jsonl", "--from", "aiperf", "--fleet", "--out", "out")
    assert ended.err == "simulate: --fleet: goes with a server's log only\n"


def test_several_files_are_one_log_or_refused(simulate):
    Path("a.jsonl").write_text("{}\n", encoding="utf-8")
    ended = simulate("import", "a.jsonl", "b.jsonl", "--from", "measured", "--out", "out")
    assert ended.code == 2
    assert ended.err == "simulate: b.jsonl: several files must be those of one server's log\n"


def test_error_about_another_file_does_not_blame_the_log(import_log):
    write_log(prefill(10, 2, 700))
    error = import_log("--results", "model of load.json").err
    assert error.startswith("simulate: model of load.json: cannot be read")


def test_path_in_a_log_is_not_read_here(import_log, tmp_path):
    """The log's path is one of the server's machine. Here another model has the same path."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}), encoding="utf-8")
    write_log(args=sglang_args(model_path=str(folder)))
    assert "is not known: give it with --model" in import_log().err


def test_requests_in_a_log_are_its_traffic(simulate, import_log):
    requests = [
        line.rstrip("\n")
        for place, rid in enumerate("abc")
        for line in (
            received(rid, 100 * place),
            finished(rid, 100 * place + 400, out(rid, at_ms=100 * place)),
        )
    ]
    write_log(prefill(10, 3, 700), *requests, decode(11, 3))
    ended = import_log()
    data = scenario_of(ended)
    assert data["scheduler"]["max_total_tokens"] == 50_000
    assert "Rebuilt from the log" not in ended.err
    rows = read_servetwin(Path("out/workload.jsonl.gz"), limit=None)
    assert (rows.arrival_ns // 10**8).tolist() == [0, 1, 2]
    assert [len(rows.prompts.prompt(place)) for place in range(3)] == [20, 20, 20]
    assert rows.output_tokens.tolist() == [8, 8, 8]
    assert Path("out/measured.jsonl.gz").exists()
    # Requests may be spread over the files of a rotated log: its batches are taken.
    Path("server.log.1").write_text(sglang_args() + "\n", encoding="utf-8")
    files = ("server.log", "server.log.1")
    ended = simulate("import", *files, "--hardware", "h100_sxm", "--out", "out")
    assert "Rebuilt from the log" in ended.err
    # Another traffic is taken if it is given.
    other = "vllm bench serve --model m --dataset-name random --num-prompts 5 --random-input-len 9"
    data = scenario_of(import_log("--command", other))
    assert data["workload"]["kind"] == "bench"


def test_log_with_requests_is_still_read_for_them(simulate):
    write_log('[2026-06-11 04:38:42] Receive: obj=GenerateReqInput(rid="a")')
    assert "--from" not in simulate("import", "server.log", "--out", "out").err
    ended = simulate(
        "import", "server.log", "--from", "server-log", "--hardware", "h100_sxm", "--out", "out"
    )
    assert ended.code == 0

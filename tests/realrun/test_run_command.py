"""`realrun run`: it serves a scenario for real, and refuses bad ones in one line."""

import json
import re
from pathlib import Path

import pytest
import torch
import yaml

import realrun.server.serve_workload
from calibrate.rebuild import rebuild
from calibrate.stages import replay_decisions
from realrun.cli import main
from sim.cli import main as simulate
from sim.core.errors import InputError
from sim.runlog.run_log_file import read_run_log
from sim.user.modules import user_code

DOCS = Path(__file__).parents[2] / "docs"
SCENARIO = yaml.safe_load("""
name: real
model: m.json
latency: {kind: linear, step_s: 0.001, per_prefill_token_s: 0, per_decode_request_s: 0,
  per_context_token_s: 0}
workload:
  kind: synthetic
  num_requests: 8
  arrivals: {kind: constant, rate_rps: 200}
  prompt_tokens: {kind: uniform, min: 4, max: 40}
  output_tokens: {kind: uniform, min: 2, max: 9}
  prefixes: {groups: 1, tokens: {kind: constant, value: 24}, share_probability: 1}
scheduler: {page_size: 8, max_total_tokens: 640, max_running_requests: 4}
""")
VLLM = {"family": "vllm"}
HOST = {"kv_offloading": {"capacity_tokens": 64, "load_tokens_per_s": 10**6}}


@pytest.fixture
def write(tmp_path, config_paths):
    """Writes the scenario with changes, and the tiny model's configuration."""
    (tmp_path / "m.json").write_text(config_paths["llama"].read_text())

    def to_disk(**sections):
        scenario = SCENARIO | sections
        if scenario["scheduler"].get("family") != "vllm":
            scenario["scheduler"] = {"context_length": 512, **scenario["scheduler"]}
        path = tmp_path / "s.yaml"
        path.write_text(yaml.safe_dump(scenario))
        return path

    return to_disk


def run(path, *arguments):
    return main(["run", str(path), "--device", "cpu", *arguments])


def test_run_serves_and_logs(write, tmp_path, capsys):
    """A summary on stdout, a log that names what ran, and whose decisions replay."""
    path, log = write(), tmp_path / "log.jsonl.gz"
    assert run(path, "--log", str(log), "--format", "json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["completed"], summary["submitted"]) == (8, 8)
    assert summary["total_cached_tokens"] > 0
    recorded = read_run_log(log)
    assert recorded.meta["source"] == "realrun"
    assert recorded.meta["scheduler"]["max_total_tokens"] == 640
    assert recorded.fingerprint["attention"] == "reference"
    assert recorded.fingerprint["dtype"] == "float32"
    assert len(recorded.steps) == summary["simulated_steps"]
    assert simulate(["compare", str(log), str(path)]) == 0
    assert "are decided the same again" in capsys.readouterr().out


@pytest.mark.parametrize("ahead", [True, False], ids=["async", "sync"])
def test_run_family_vllm_serves_and_logs(write, tmp_path, capsys, ahead):
    """Nine blocks of eight tokens: prompts in chunks, hits, preemptions; the log replays."""
    scheduler = {
        "family": "vllm",
        "block_size": 8,
        "num_gpu_blocks_override": 10,
        "max_num_batched_tokens": 16,
        "max_num_seqs": 4,
        "max_model_len": 72,
        "async_scheduling": ahead,
    }
    path, log = write(scheduler=scheduler), tmp_path / "log.jsonl.gz"
    assert run(path, "--log", str(log), "--format", "json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["completed"], summary["submitted"]) == (8, 8)
    assert summary["total_cached_tokens"] > 0
    recorded = read_run_log(log)
    assert recorded.meta["scheduler"]["family"] == "vllm"
    assert recorded.meta["scheduler"]["num_gpu_blocks"] == 10
    for line in recorded.requests:
        assert len(line["token_ns"]) == line["output_tokens"]
    assert simulate(["compare", str(log), str(path)]) == 0
    assert "are decided the same again" in capsys.readouterr().out
    assert replay_decisions(rebuild(log)) is None


DRAFTING = {
    "workload": {"kind": "trace", "format": "servetwin", "path": "quotes.jsonl"},
    "acceptance": {"rate": 0.5},
    "scheduler": {
        "family": "vllm",
        "block_size": 8,
        "num_gpu_blocks_override": 10,
        "max_num_batched_tokens": 40,
        "max_num_seqs": 4,
        "speculative_config": {
            "method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 2
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("name", ["s.yaml", "quotes.jsonl"])
def test_run_whose_log_is_an_input_is_refused_before_a_model_is_loaded(
    write, tmp_path, capsys, monkeypatch, name
):
    """The scenario, or the trace that it names."""

    def load(*arguments):
        raise AssertionError("a model is loaded")

    monkeypatch.setattr(realrun.server.serve_workload, "warm_server", load)
    path, log = write(**DRAFTING), tmp_path / name
    (tmp_path / "quotes.jsonl").write_text(
        '{"rid": "a", "arrival": 0, "segments": [[1, 9]], "output_len": 2, "output_seed": 1}\n'
    )
    before = log.read_text()
    assert run(path, "--log", str(log)) == 2
    said = f"realrun: {log}: is read by this command: write to another place\n"
    assert capsys.readouterr() == ("", said)
    assert log.read_text() == before


@pytest.mark.parametrize("sampling", ["forced", "greedy"])
def test_run_with_drafts_serves_and_logs(write, tmp_path, capsys, sampling):
    """Forced outputs repeat the prompts, so drafts are accepted; the log replays, and simulates."""
    path, log = write(**DRAFTING), tmp_path / "log.jsonl.gz"
    rows = [
        {"rid": f"r{i}", "arrival": 0, "segments": [[i, 9 + i]], "output_len": 8 + i,
         "output_seed": i, "ignore_eos": i % 2 == 0}
        for i in range(8)
    ]  # fmt: skip
    (tmp_path / "quotes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(path, "--log", str(log), "--format", "json", "--sampling", sampling) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["completed"], summary["submitted"]) == (8, 8)
    assert summary["mean_acceptance_length"] >= 1
    requests = read_run_log(log).requests
    if sampling == "forced":
        assert summary["accepted_tokens"] > 0
        assert [line["output_tokens"] for line in requests] == [8 + i for i in range(8)]
    assert simulate(["compare", str(log), str(path)]) == 0
    assert "are decided the same again" in capsys.readouterr().out
    same = [f"acceptance={{recorded: {log}}}", f"latency={{kind: recorded, path: {log}}}"]
    if sampling == "forced":
        again = [word for option in same for word in ("--set", option)]
        assert simulate(["run", str(path), "--format", "json", *again]) == 0
        simulated = json.loads(capsys.readouterr().out)
        for name in ("accepted_tokens", "drafted_tokens", "simulated_steps"):
            assert simulated[name] == summary[name]
    with pytest.raises(InputError, match=r"compared by|only outputs that the scenario"):
        rebuild(log)


def test_run_family_vllm_without_sizes_takes_those_of_device_and_model(write, tmp_path):
    """Whole prompts fit the budget because the model has 512 positions, however large the pool."""
    scheduler = {
        "family": "vllm",
        "block_size": 8,
        "max_num_batched_tokens": 512,
        "enable_chunked_prefill": False,
        "gpu_memory_utilization": 0.001,
    }
    log = tmp_path / "log.jsonl"
    assert run(write(scheduler=scheduler, hardware="h200-sxm"), "--log", str(log)) == 0
    meta = read_run_log(log).meta
    assert meta["scheduler"]["max_model_len"] == 512
    assert meta["max_total_tokens"] > 640


def test_run_says_that_the_section_host_is_not_used(write, capsys):
    """One line on stderr; without the section none."""
    assert run(write(host="vllm-async"), "--format", "json") == 0
    notes = [line for line in capsys.readouterr().err.splitlines() if "host" in line]
    assert len(notes) == 1
    assert re.fullmatch(r"realrun: .*s.yaml:\d+: host: is not used by a real run, .*", notes[0])
    assert run(write(), "--format", "json") == 0
    assert "host" not in capsys.readouterr().err


def test_run_with_kv_in_cpu_memory_logs_copies(write, tmp_path):
    """What was stored and loaded, and how long it took; the log replays."""
    scheduler = {
        **VLLM,
        **HOST,
        "block_size": 8,
        "num_gpu_blocks_override": 20,
        "max_num_seqs": 4,
        "max_model_len": 72,
        "async_scheduling": False,
        "enable_prefix_caching": False,
    }
    path, log = write(scheduler=scheduler), tmp_path / "log.jsonl"
    assert run(path, "--log", str(log)) == 0
    copies = [copy for step in read_run_log(log).steps for copy in step.get("copies", ())]
    assert {direction for direction, _, _ in copies} == {"load", "store"}
    assert all(num_bytes > 0 and duration_ns > 0 for _, num_bytes, duration_ns in copies)
    assert replay_decisions(rebuild(log)) is None


def test_run_log_document_names_every_key(write, tmp_path):
    """Together with decision-log.md it names every key, and no key that is not there."""
    log = tmp_path / "log.jsonl"
    run(write(), "--log", str(log))
    recorded = read_run_log(log)
    for heading, line in (("Steps", recorded.steps[0]), ("Requests", recorded.requests[0])):
        documented = {"output_ids"} if heading == "Requests" else set()
        for name in ("decision-log.md", "run-log.md"):
            text = (DOCS / "reference" / name).read_text(encoding="utf-8")
            section = text.split(f"## {heading}\n")[1].split("\n## ")[0]
            documented |= set(re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE))
        # A real server has no ranks, outputs are kept on demand, and here nothing is copied.
        assert documented == {*line, *documented & {"copies", "output_ids", "rank"}}


def test_run_without_pool_size_takes_what_the_device_has(write, tmp_path):
    """`mem_fraction_static` of the memory there is, as the log says."""
    path, log = write(), tmp_path / "log.jsonl"
    text = path.read_text().replace("  max_total_tokens: 640\n", "  mem_fraction_static: 0.001\n")
    path.write_text(text + "hardware: h200-sxm\n")
    assert run(path, "--log", str(log)) == 0
    assert read_run_log(log).meta["max_total_tokens"] > 640


def test_run_greedy_logs_what_the_model_said(write, tmp_path, config_paths):
    """Outputs are in the log, within the vocabulary, as long as they were allowed to be."""
    log = tmp_path / "log.jsonl"
    assert run(write(), "--log", str(log), "--sampling", "greedy") == 0
    recorded = read_run_log(log)
    vocab_size = json.loads(config_paths["llama"].read_text())["vocab_size"]
    for line in recorded.requests:
        assert len(line["output_ids"]) == line["output_tokens"]
        assert all(0 <= token < vocab_size for token in line["output_ids"])


def refused(capsys, *arguments):
    """The error line of `realrun run`."""
    assert run(*arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({"model": None}, "model: is required to run for real"),
        ({"replicas": 2}, "replicas: must be 1 in a real run, not 2"),
        ({"model": "no.json"}, "no.json: cannot be read: No such file"),
        ({"model": "mistral"}, "unknown model 'mistral'"),
        ({"scheduler": {"page_size": 256, "max_total_tokens": 512}},
         "s.yaml:12: scheduler.page_size: the runner takes 1 to 128"),
        ({"scheduler": {"max_total_tokens": 512, "host_cache": {"load_tokens_per_s": 10**6}}},
         "scheduler.host_cache: the real runner keeps no KV in host memory"),
        ({"scheduler": {"max_total_tokens": 640, "context_length": 4096}},
         "context_length: 4096 is more than the 512 positions of m"),
        ({"scheduler": {"max_total_tokens": 10**11}}, "scheduler.max_total_tokens: their KV takes"),
        ({**DRAFTING, "scheduler": {**VLLM, "num_gpu_blocks_override": 9, "speculative_config":
          {"method": "eagle", "num_speculative_tokens": 3}}},
         "scheduler.speculative_config: the real runner drafts with method ngram alone"),
        ({"scheduler": {**VLLM, "num_gpu_blocks_override": 9, **HOST}},
         "scheduler.async_scheduling: the real runner keeps KV in CPU memory only without it"),
        ({**DRAFTING, "scheduler": {**VLLM, "num_gpu_blocks_override": 9, **HOST,
          "speculative_config": {"method": "ngram", "num_speculative_tokens": 3}}},
         "scheduler.speculative_config: the real runner keeps KV in CPU memory only without"),
        ({"scheduler": {**VLLM, "num_gpu_blocks_override": 9, "async_scheduling": False,
          "kv_offloading": {"capacity_tokens": 2**40}}},
         "KV in CPU memory takes"),
        ({"scheduler": {**VLLM, "block_size": 256, "num_gpu_blocks_override": 9}},
         "s.yaml:10: scheduler.block_size: the runner takes 1 to 128"),
        ({"scheduler": {**VLLM, "num_gpu_blocks_override": 10**10}},
         "scheduler.num_gpu_blocks_override: their KV takes"),
        ({"scheduler": {**VLLM, "num_gpu_blocks_override": 9, "max_model_len": 200}},
         "scheduler.max_model_len: 200 tokens do not fit in the pool of 128 tokens"),
        ({"scheduler": {**VLLM, "num_gpu_blocks_override": 999, "max_model_len": 600}},
         "scheduler.max_model_len: 600 is more than the 512 positions of m"),
        ({"scheduler": {**VLLM, "gpu_memory_utilization": 1e-9}, "hardware": "h200-sxm"},
         "scheduler.gpu_memory_utilization: leaves 0.00 GiB of cpu"),
    ],
)  # fmt: skip
def test_run_bad_scenario_is_one_line(write, capsys, sections, reason):
    """What a simulation does not need, and what no device has."""
    assert reason in refused(capsys, write(**sections))


def test_run_missing_weights_is_one_line(write, tmp_path, capsys, config_paths):
    """A checkpoint's folder without weights."""
    folder = tmp_path / "empty"
    folder.mkdir()
    (folder / "config.json").write_text(config_paths["llama"].read_text())
    message = refused(capsys, write(model="./empty"))
    assert "empty" in message
    assert "weights" in message


def test_run_unsupported_architecture_is_one_line(write, tmp_path, capsys, config_paths):
    """Another model_type."""
    config = json.loads(config_paths["llama"].read_text()) | {"model_type": "mistral"}
    (tmp_path / "other.json").write_text(json.dumps(config))
    assert "model_type" in refused(capsys, write(model="other.json"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_run_without_cuda_is_one_line(write, capsys):
    """Asked for what is not there."""
    path = write()
    assert main(["run", str(path), "--device", "cuda"]) == 2
    assert "torch finds no CUDA device" in capsys.readouterr().err
    assert "needs a CUDA device" in refused(capsys, path, "--attention", "flashinfer")


def test_run_log_that_cannot_be_written_is_found_out_first(write, tmp_path, capsys):
    """Before anything is served."""
    message = refused(capsys, write(), "--log", str(tmp_path / "no" / "log.jsonl"))
    assert "does not exist" in message


def test_run_unknown_dtype_is_one_line(write, capsys):
    """With the nearest name."""
    assert "did you mean float32?" in refused(capsys, write(), "--dtype", "float31")


def test_run_with_a_policy_of_the_users_is_served_and_rebuilt(write, tmp_path):
    """The class beside the scenario orders a real server's queue, and its log can be replayed."""
    text = "from sim.sglang.policies.policy import Fcfs\n\n\nclass Mine(Fcfs):\n    pass\n"
    (tmp_path / "own_policy.py").write_text(text)
    path = write(scheduler={**SCENARIO["scheduler"], "schedule_policy": "own_policy:Mine"})
    assert run(path, "--log", str(tmp_path / "log.jsonl")) == 0
    with pytest.raises(InputError, match="is Python code: it runs only with --user-code"):
        rebuild(tmp_path / "log.jsonl")
    with user_code(wanted=True):
        rebuilt = rebuild(tmp_path / "log.jsonl")
    assert rebuilt.config.user.schedule_policy is not None
    assert rebuilt.recorded.meta["scheduler"]["schedule_policy"] == "own_policy:Mine"
    assert replay_decisions(rebuilt) is None
    (tmp_path / "own_policy.py").unlink()
    with pytest.raises(InputError, match="policy: no module own_policy"), user_code(wanted=True):
        rebuild(tmp_path / "log.jsonl")

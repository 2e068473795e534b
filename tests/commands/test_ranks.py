"""Groups of ranks from the command line: what runs write, what is refused, what is imported."""

import json
from pathlib import Path

import pytest

from sim.scenario.load import load_scenario

GROUP = """
name: group
replicas: 2
latency: {kind: linear, step_s: 0.005, per_prefill_token_s: 4e-5, per_decode_request_s: 5e-5,
  per_context_token_s: 2e-8, dp: 3}
workload: {kind: synthetic, num_requests: 30, arrivals: {kind: poisson, rate_rps: 40},
  prompt_tokens: {kind: constant, value: 60}, output_tokens: {kind: constant, value: 20}}
scheduler: {max_total_tokens: 4096, max_running_requests: 12, chunked_prefill_size: 96}
"""


@pytest.fixture
def group(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("group.yaml").write_text(GROUP, encoding="utf-8")
    return "group.yaml"


@pytest.mark.parametrize("family", ["sglang", "vllm"])
def test_group_s_files_say_which_rank(simulate, group, family):
    """Of every request and step; and the log can be decided again."""
    vllm = "scheduler={family: vllm, num_gpu_blocks_override: 257, max_model_len: 512}"
    options = ("--set", vllm) if family == "vllm" else ()
    files = ("--requests", "r.csv", "--perfetto", "p.json", "--decisions", "d.jsonl")
    assert simulate("run", group, *options, *files).code == 0
    header, *rows = Path("r.csv").read_text("utf-8").splitlines()
    place = header.split(",").index("replica")
    assert header.split(",")[place + 1] == "rank"
    places = {tuple(row.split(",")[place : place + 2]) for row in rows}
    assert places == {(str(replica), str(rank)) for replica in (0, 1) for rank in (0, 1, 2)}
    events = json.loads(Path("p.json").read_text("utf-8"))["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names == [f"replica {n} rank {rank}" for n in (0, 1) for rank in (0, 1, 2)]
    lines = [json.loads(line) for line in Path("d.jsonl").read_text("utf-8").splitlines()]
    assert {(line["replica"], line["rank"]) for line in lines if line["kind"] == "req"} == {
        (int(replica), int(rank)) for replica, rank in places
    }
    ended = simulate("compare", "d.jsonl", group, *options)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.endswith(" steps are decided the same again\n")
    for ranks, had in ((1, "rank 0"), (2, "rank 2")):
        other = simulate("compare", "d.jsonl", group, *options, "--set", f"latency.dp={ranks}")
        assert other.err.endswith(f"d.jsonl: has {had}, but the scenario's latency.dp is {ranks}\n")


def test_group_divides_what_sglang_divides(simulate, group):
    """4 slots and chunks of 32 for each of three ranks: a prompt of 60 takes two steps."""
    assert simulate("run", group, "--decisions", "d.jsonl").code == 0
    lines = [json.loads(line) for line in Path("d.jsonl").read_text("utf-8").splitlines()]
    steps = [line for line in lines if line["kind"] == "step"]
    assert max(sum(row[2] for row in step["prefill"]) for step in steps) == 32
    assert max(step["n_decode"] for step in steps) <= 4
    assert steps[0]["ratio"] == pytest.approx(0.7 * 0.3)


@pytest.mark.parametrize(
    ("option", "line"),
    [
        (
            "scheduler={max_total_tokens: 4096, page_size: 48, chunked_prefill_size: 96}",
            "chunked_prefill_size: 96 over 3 ranks (latency.dp) is less than page_size 48 for each",
        ),
        ("latency.dp=0", "latency.dp=0: must be at least 1"),
        (
            "scheduler.load_balance_method=minimum",
            "unknown value 'minimum' (one of: auto, round_robin",
        ),
    ],
)
def test_group_that_cannot_be_is_refused_in_one_line(simulate, group, option, line):
    ended = simulate("validate", group, "--set", option)
    assert ended.code == 2
    assert line in ended.err
    assert ended.err.count("\n") == 1


def measured_run(folder, **engine):
    """A run of two requests, as LLMServingSim's benchmark writes it."""
    folder.mkdir()
    workload = [{"timestamp": 0, "input_length": 32, "output_length": 5, "hash_ids": [0, 1]}] * 2
    times = {"queued_ts": 1.0, "scheduled_ts": 1.1, "first_token_ts": 1.2, "last_token_ts": 1.5}
    rows = [
        {"request_id": f"bench-{i}", "input_toks": 32, "output_toks": 5, **times} for i in range(2)
    ]
    for name, lines in {"workload.blk16.jsonl": workload, "requests.jsonl": rows}.items():
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (folder / name).write_text(text, encoding="utf-8")
    meta = {"model": "some/MoE", "engine_kwargs": {"max_num_seqs": 64, **engine}}
    (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")


@pytest.mark.parametrize("spread", [True, False])
def test_import_of_a_run_with_ranks_gives_a_group(simulate, group, spread):
    """Only ranks that compute experts together step together."""
    measured_run(Path("run"), data_parallel_size=2, enable_expert_parallel=spread)
    ended = simulate("import", "run", "--out", "out")
    assert ended.code == 0
    text = Path("out/scenario.yaml").read_text("utf-8")
    assert "data_parallel_size 2" in text
    scenario = load_scenario("out/scenario.yaml").scenario
    assert scenario.latency.dp == (2 if spread else 1)
    assert simulate("run", "out/scenario.yaml").code == 0


@pytest.mark.parametrize(
    ("latency", "given", "hint"),
    [
        ("{kind: layers, path: p}", {"dp": 2, "all_reduce_gb_s": 0.0}, "PLACEHOLDER: what they"),
        (
            "{kind: layers, path: p, all_reduce_gb_s: 50, all_reduce_latency_s: 1e-5}",
            {"dp": 2, "all_reduce_gb_s": 50},
            "dp 2.",
        ),
        ("{kind: aiconfigurator, system: h200_sxm}", {"dp": 2, "moe_ep": 2}, "dp 2."),
        ("{kind: profile, path: p.json}", {}, "has no ranks"),
    ],
)
def test_import_gives_ranks_to_a_template(simulate, group, latency, given, hint):
    """As far as its kind of latency has any; its replicas were the ranks."""
    measured_run(Path("run"), data_parallel_size=2, enable_expert_parallel=True)
    section = GROUP[GROUP.index("latency:") : GROUP.index("workload:")]
    Path("t.yaml").write_text(GROUP.replace(section, f"latency: {latency}\n"), encoding="utf-8")
    ended = simulate("import", "run", "--out", "out", "--template", "t.yaml")
    assert ended.code == 0
    assert hint in ended.err
    scenario = load_scenario("out/scenario.yaml").scenario
    assert {key: getattr(scenario.latency, key) for key in given} == given
    assert scenario.replicas == (1 if given else 2)

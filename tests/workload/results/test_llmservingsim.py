"""LLMServingSim's folders: the log of an engine, and the workload that it got."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from sim.workload.config import TraceConfig
from sim.workload.kinds.build import build_workload
from sim.workload.kinds.stats import workload_stats

MEASURED_RUN = Path(__file__).parents[3] / "data/measured/vllm-0.19-rtxpro6000-llama-3.1-8b"
WORKLOAD = [
    {"timestamp": 0, "input_length": 40, "output_length": 5, "hash_ids": [0, 1, 2]},
    {"timestamp": 10, "input_length": 20, "output_length": 6, "hash_ids": [0, 9]},
    {"timestamp": 20, "input_length": 16, "output_length": 7, "hash_ids": [5]},
]


def measured(place, queued_s, **more):
    return {
        "request_id": f"bench-{place}",
        "input_toks": WORKLOAD[place]["input_length"],
        "output_toks": WORKLOAD[place]["output_length"],
        "queued_ts": queued_s,
        "scheduled_ts": queued_s + 0.001,
        "first_token_ts": queued_s + 0.25,
        "last_token_ts": queued_s + 1.5,
        **more,
    }


@pytest.fixture
def folder(tmp_path):
    """Write a folder of these measured lines; returns its path."""

    def write(*rows, workload="workload.blk16.jsonl", **files):
        path = tmp_path / "run"
        path.mkdir()
        for name, content in {workload: WORKLOAD, "requests.jsonl": rows}.items():
            text = "".join(f"{json.dumps(row)}\n" for row in content)
            (path / name).write_text(text, encoding="utf-8")
        for name, content in files.items():
            (path / f"{name}.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
        return path

    return write


def test_requests_join_the_rows_of_the_workload(folder, imported):
    """Joined by the number in their names; they arrive when they reached the engine."""
    rows = [measured(2, 500.5), measured(0, 500.0), measured(1, 500.125)]
    run, requests = imported(folder(*rows))
    assert [(one.rid, one.arrival_ns // 1_000_000) for one in requests] == [
        ("bench-0", 0), ("bench-1", 125), ("bench-2", 500),
    ]  # fmt: skip
    assert requests[1].prompt_ids.ids.tolist() == [0, 9]
    assert requests[1].prompt_ids.unit == 16
    assert requests[1].scheduled_ns - requests[1].arrival_ns == 1_000_000
    assert (run.facts.engines, run.facts.scheduler) == (("vllm",), {"block_size": 16})


def test_settings_are_vllms_own(folder, imported):
    """The settings that meta.json has."""
    engine = {"max_num_seqs": 128, "max_num_batched_tokens": 2048, "dtype": "bfloat16"}
    meta = {"model": "org/M", "vllm_version": "0.19.0", "engine_kwargs": engine}
    run, _ = imported(folder(measured(0, 1.0), meta=meta))
    assert run.facts.scheduler == {
        "block_size": 16, "max_num_seqs": 128, "max_num_batched_tokens": 2048, "version": "0.19.0",
    }  # fmt: skip
    assert run.facts.other_settings == {"dtype": "bfloat16", "vllm_version": "0.19.0"}


@pytest.mark.parametrize("ranks", [0, 1_025, "2", True])
def test_number_of_ranks_that_no_server_has_is_refused(folder, refusal, ranks):
    """By the name of the file that has it, not of the scenario that would be written."""
    meta = {"engine_kwargs": {"data_parallel_size": ranks, "enable_expert_parallel": True}}
    refused = refusal(folder(measured(0, 1.0), meta=meta))
    assert refused.startswith("run/meta.json:1: data_parallel_size: ")


def test_rows_that_were_never_measured_are_named(folder, imported):
    run, requests = imported(folder(measured(1, 1.0)))
    assert [one.rid for one in requests] == ["bench-1"]
    assert run.left_out == (
        "row 0 of workload.blk16.jsonl: never measured",
        "row 2 of workload.blk16.jsonl: never measured",
    )


def test_request_without_a_last_token_failed(folder, imported):
    """Its tokens before the end count."""
    given_up = measured(0, 1.0, last_token_ts=None, output_toks=2)
    _, [request] = imported(folder(given_up))
    assert request.failure == "no last token"
    assert (request.output_tokens, request.finish_ns) == (2, None)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (measured(0, 1.0, request_id="bench"),
         'request_id: "bench" does not end in a row number'),
        (measured(0, 1.0, request_id="bench-3"),
         'request_id: "bench-3": the workload has only 3 rows'),
        (measured(0, 1.0, request_id="bench-1"), "request_id: row 1 already belongs to line 1"),
        (measured(0, 1.0, input_toks=41), "input_toks: is 41, but row 0 has 40"),
        (measured(0, 1.0, queued_ts=None), "queued_ts: missing"),
        (measured(0, 1.0, scheduled_ts="x"), 'scheduled_ts: "x" is not a finite number'),
    ],
)  # fmt: skip
def test_bad_request_is_refused_with_line_and_key(folder, refusal, row, reason):
    assert refusal(folder(measured(1, 1.0), row)) == f"run/requests.jsonl:2: {reason}"


def test_workload_of_other_blocks_is_refused(folder, refusal):
    """Without blk16 in its name, ids stand for 512 tokens each."""
    line = refusal(folder(measured(0, 1.0), workload="workload.jsonl"))
    assert line.startswith("run/workload.jsonl:1: hash_ids: 3 ids, but")


def test_folder_needs_one_workload(folder, refusal):
    path = folder(measured(0, 1.0))
    (path / "workload.blk16.jsonl.gz").write_bytes(gzip.compress(b""))
    assert refusal(path) == (
        "run: expected one workload*.jsonl.gz, found workload.blk16.jsonl, workload.blk16.jsonl.gz"
    )


def test_measured_run_has_the_published_means(imported, workload_of):
    """A real vLLM 0.19.0: 300 requests, the means of their lengths and latencies."""
    _, requests = imported(MEASURED_RUN)
    assert len(requests) == 300
    ttft, latency, decode = (
        np.array(times) / 1e6
        for times in zip(
            *(
                (one.first_token_ns - one.arrival_ns, one.finish_ns - one.arrival_ns,
                 one.finish_ns - one.first_token_ns)
                for one in requests
            ),
            strict=True,
        )
    )  # fmt: skip
    outputs = np.array([one.output_tokens for one in requests])
    assert ttft.mean() == pytest.approx(7097.2, abs=0.1)
    assert (decode / (outputs - 1)).mean() == pytest.approx(32.46, abs=0.01)
    assert latency.mean() == pytest.approx(28200.7, abs=0.1)
    stats = workload_stats(workload_of(requests), 16)
    assert round(stats.input_tokens.mean) == 857
    assert round(stats.output_tokens.mean) == 653
    assert round(stats.block_hit_pct, 1) == 7.5


def test_measured_run_shares_what_its_own_blocks_share(imported, workload_of):
    """Streams of tokens hit an endless cache as the hash ids they came from do."""
    [path] = MEASURED_RUN.glob("workload*.jsonl.gz")
    config = TraceConfig(kind="trace", format="mooncake", path=path.name, block_size=16)
    own = build_workload(config, seed=0, base_dir=MEASURED_RUN)
    _, requests = imported(MEASURED_RUN)
    ours, theirs = (workload_stats(each, 16) for each in (workload_of(requests), own))
    assert ours.token_hit_pct == pytest.approx(theirs.token_hit_pct, abs=0.05)
    assert ours.input_tokens == theirs.input_tokens

"""A simulated run, written in another tool's format and imported, is the same run."""

from pathlib import Path

import numpy as np
import pytest

from sim.commands.import_results import read_results, sniff
from sim.commands.running.simulate import run_built
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text
from sim.workload.results.measured import in_order
from sim.workload.results.model import ReadOptions
from tests.support import client_results, result_files
from tests.support.serve import LINEAR_LATENCY

SERVER = (
    f"name: round-trip\nseed: SEED\n{LINEAR_LATENCY}"
    """\
scheduler: {schedule_policy: lpm, page_size: 16, max_total_tokens: 4096, context_length: 2048,
  chunked_prefill_size: 256, max_running_requests: 6}
"""
)
CONVERSATIONS = """\
workload:
  kind: sessions
  sessions: 8
  arrivals: {kind: poisson, rate_rps: 30}
  turns: {kind: uniform, min: 1, max: 3}
  user_tokens: {kind: uniform, min: 5, max: 90}
  output_tokens: {kind: uniform, min: 1, max: 40}
  think_s: {kind: constant, value: 0.3}
  closed_loop: false
  system_prompts: {count: 2, tokens: 70}
"""
TRACE = """\
workload: {kind: trace, format: servetwin, path: workload.jsonl.gz}
"""
BLOCKS = """\
workload: {kind: trace, format: mooncake, path: t.jsonl, block_size: 16}
"""
TOLERANCE_NS = 3
WRITERS = {
    "vllm-bench": result_files.vllm_bench,
    "aiperf": result_files.aiperf,
    "sglang-dump": result_files.sglang_dump,
    "sglang-export": result_files.sglang_export,
    "guidellm": client_results.guidellm,
    "genai-perf": client_results.genai_perf,
    "inference-perf": client_results.inference_perf,
    "aibrix": client_results.aibrix,
}
NAMED = ("aiperf", "sglang-dump", "sglang-export", "guidellm")
LOGS = {"json": result_files.sglang_json_log, "text": result_files.sglang_text_log}


def simulated(section, seed, folder=Path()):
    """The log of a scenario, and what its server did of each request."""
    text = SERVER.replace("SEED", str(seed)) + section
    built = build(load_scenario_text(text, base_dir=folder))
    log = run_built(built)
    return log, result_files.served_by(log, built.workload), built.workload


def facts(served):
    """What all formats contain: arrival, first token, finish, lengths; from the first arrival."""
    start = min(one.arrival_ns for one in served)
    return [
        (one.rid, one.arrival_ns - start, one.first_token_ns - start, one.finish_ns - start,
         len(one.prompt), len(one.answer))
        for one in served
    ]  # fmt: skip


def imported_facts(requests):
    return [
        (one.rid, one.arrival_ns, one.first_token_ns, one.finish_ns,
         one.prompt_tokens, one.output_tokens)
        for one in requests
    ]  # fmt: skip


def assert_same(requests, served, *, named=True):
    """The same requests in order, within rounding. Names are numbers if the file has none."""
    for got, wanted in zip(imported_facts(requests), facts(served), strict=True):
        if named:
            assert got[0] == wanted[0]
        assert np.abs(np.subtract(got[1:4], wanted[1:4])).max() <= TOLERANCE_NS
        assert got[4:] == wanted[4:]


def shared(prompts):
    """How many tokens every two prompts have in common at their beginning."""

    def alike(some, others):
        shorter = min(len(some), len(others))
        differ = np.flatnonzero(np.asarray(some[:shorter]) != np.asarray(others[:shorter]))
        return int(differ[0]) if len(differ) else shorter

    return [[alike(one, other) for other in prompts] for one in prompts]


def write_and_read(content, folder):
    path = folder / "results"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    format_ = sniff(path)
    run = read_results(path, format_, ReadOptions())
    return format_, run, in_order(run.requests, str(path))[0]


@pytest.mark.parametrize("format_", WRITERS)
@pytest.mark.parametrize("seed", [1, 2])
def test_round_trip_keeps_arrivals_lengths_and_latencies(tmp_path, format_, seed):
    """Known by its content, and read to the nanosecond's rounding."""
    _, served, _ = simulated(CONVERSATIONS, seed)
    assert len(served) >= 8
    found, run, requests = write_and_read(WRITERS[format_](served), tmp_path)
    assert found == format_
    assert_same(requests, served, named=format_ in NAMED)
    assert not any(request.failure for request in requests)
    assert run.left_out == ()


@pytest.mark.parametrize("kind", LOGS)
def test_round_trip_of_a_log_keeps_what_servers_know(tmp_path, kind):
    """Also when a request was scheduled, and its limits."""
    _, served, _ = simulated(CONVERSATIONS, 3)
    found, _, requests = write_and_read(LOGS[kind](served), tmp_path)
    assert found == "sglang-log"
    assert_same(requests, served)
    start = min(one.arrival_ns for one in served)
    for request, one in zip(requests, served, strict=True):
        assert abs(request.scheduled_ns - (one.scheduled_ns - start)) <= TOLERANCE_NS
        assert (request.max_new_tokens, request.ignore_eos) == (one.max_new_tokens, False)


@pytest.mark.parametrize("write", [*LOGS.values(), result_files.sglang_dump])
def test_round_trip_with_token_ids_simulates_the_same_run(tmp_path, workload_of, write):
    """Prompts share as much as before, answers are found in later turns: same hits, same times."""
    log, served, _ = simulated(CONVERSATIONS, 4)
    _, _, requests = write_and_read(write(served), tmp_path)
    workload = workload_of(requests)
    prompts = [request.spec.prompt.token_ids() for request in workload.arrivals()]
    assert shared(prompts) == shared([one.prompt for one in served])
    again, served_again, _ = simulated(TRACE, 4, tmp_path)
    assert again.requests.cached_tokens.sum() == log.requests.cached_tokens.sum() > 1000
    assert_same(requests, served_again)


def test_round_trip_of_blocks_keeps_what_they_share(tmp_path, trace, workload_of):
    """A folder as LLMServingSim has them: hash ids of 16 tokens become token streams."""
    rng = np.random.default_rng(5)
    rows = []
    for place in range(30):
        depth = int(rng.integers(0, 6))
        num_tokens = int(rng.integers(16 * depth + 1, 16 * depth + 60))
        own = range(1000 * (place + 1), 1000 * (place + 1) + 99)
        ids = [*range(depth), *own][: -(-num_tokens // 16)]
        rows.append(
            {
                "timestamp": 20 * place,
                "input_length": num_tokens,
                "output_length": 9,
                "hash_ids": ids,
            }
        )
    trace("mooncake", rows, block_size=16)
    (tmp_path / "t").rename(tmp_path / "t.jsonl")
    _, served, blocks = simulated(BLOCKS, 6, tmp_path)
    result_files.write_llmservingsim(served, blocks, tmp_path / "run")
    assert sniff(tmp_path / "run") == "llmservingsim"
    run = read_results(tmp_path / "run", "llmservingsim", ReadOptions())
    requests, _ = in_order(run.requests, "run")
    assert_same(requests, served, named=False)
    prompts = [request.spec.prompt.token_ids() for request in workload_of(requests).arrivals()]
    assert shared(prompts) == shared([one.prompt for one in served])
    _, again, _ = simulated(TRACE, 6, tmp_path)
    assert_same(requests, again, named=False)


def test_round_trip_without_start_times_follows_from_the_places(tmp_path):
    """Clients that send the next request at once leave no more than latencies, and lose nothing."""
    section = """\
workload:
  kind: clients
  clients: 4
  requests_per_client: 30
  think_s: {kind: constant, value: 0}
  prompt_tokens: {kind: uniform, min: 5, max: 300}
  output_tokens: {kind: uniform, min: 1, max: 40}
"""
    text = SERVER.replace("SEED", "7") + section
    log = run_built(build(load_scenario_text(text)))
    columns = log.requests
    order = np.argsort(columns.arrival_ns, kind="stable")
    # When a client has no more requests, its slot stays free.
    last_turns = [row for row, rid in enumerate(columns.rid) if rid.endswith("-29")]
    assert len(last_turns) == 4
    until = min(int(columns.finish_ns[row]) for row in last_turns)
    rows = [int(row) for row in order if columns.arrival_ns[row] < until]
    assert len(rows) > 60
    served = [
        result_files.ServedRequest(
            rid=columns.rid[row],
            arrival_ns=int(columns.arrival_ns[row]),
            scheduled_ns=int(columns.scheduled_ns[row]),
            first_token_ns=int(columns.first_token_ns[row]),
            finish_ns=int(columns.finish_ns[row]),
            prompt=(0,) * int(columns.prompt_tokens[row]),
            answer=(0,) * int(columns.output_tokens[row]),
            max_new_tokens=1,
        )
        for row in rows
    ]
    content = result_files.sglang_bench(served, max_concurrency=4, duration=3.5)
    found, run, requests = write_and_read(content, tmp_path)
    assert found == "sglang-bench"
    for got, one in zip(requests, served, strict=True):
        # Rounding errors add up over the requests of a slot.
        assert abs(got.arrival_ns - one.arrival_ns) <= TOLERANCE_NS * len(served)
        assert got.output_tokens == len(one.answer)
    assert any("follow from the latencies" in note for note in run.notes)

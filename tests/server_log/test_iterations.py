"""Requests that are rebuilt from the lines of a vLLM server's steps."""

import gzip
import json
from pathlib import Path

import pytest

from sim.core.errors import InputError
from sim.families import open_server_log
from sim.server_log.records import NO_RANK, Kind, LogEvent, Rank
from sim.server_log.traffic import IterationCounter

REAL = Path(__file__).parents[2] / "data/measured/vllm-0.26-h100-llama-3.1-8b-faults"


def take(counter, *steps, rank=NO_RANK, begin_us=1_000_000):
    """Steps of 10 ms: the number of each, its prompts, their tokens, and its decode rows."""
    for step, prompts, tokens, rows in steps:
        fields = {
            "step": step,
            "num_prefill_requests": prompts,
            "num_prefill_tokens": tokens,
            "num_decode_requests": rows,
            "num_decode_tokens": rows,
            "elapsed_ms": 4.0,
        }
        counter.take(LogEvent(Kind.ITERATION, step + 1, begin_us + 10_000 * step, rank, fields))


def rebuilt(*steps, budget=0, accepted=1.0):
    counter = IterationCounter("server.log")
    counter.budget = budget
    take(counter, *steps)
    return counter.requests(accepted)


def test_a_request_alone_is_known_to_the_token():
    found = rebuilt((0, 1, 700, 0), (1, 0, 0, 1), (2, 0, 0, 1), (3, 1, 30, 0))
    assert list(found.prompt_tokens) == [700, 30]
    assert list(found.output_tokens) == [3, 1]
    # An idle server decides a step when the request comes: before it waits for the result.
    assert list(found.at_us) == [996_000, 1_026_000]
    assert found.num_alone == 2


def test_a_request_of_a_busy_server_begins_with_the_line_before():
    found = rebuilt((0, 1, 700, 0), (1, 0, 0, 1), (2, 1, 90, 1), (3, 0, 0, 2))
    assert list(found.at_us) == [996_000, 1_010_000]
    assert found.num_open == 2


def test_requests_that_begin_together_share_their_tokens():
    found = rebuilt((0, 3, 600, 0), (1, 0, 0, 3), (2, 0, 0, 1), (3, 0, 0, 0))
    assert list(found.prompt_tokens) == [200, 200, 200]
    assert sorted(found.output_tokens) == [2, 2, 3]
    assert found.num_alone == 0


def test_who_began_first_ends_first():
    steps = [(0, 1, 50, 0), (1, 1, 60, 1), (2, 0, 0, 2), (3, 0, 0, 1), (4, 0, 0, 0)]
    assert list(rebuilt(*steps).output_tokens) == [3, 3]


def test_a_prompt_that_a_full_step_cuts_is_one_request():
    """Beside it, the first step has a whole prompt, and the last one another."""
    steps = [(0, 2, 1000, 0), (1, 1, 999, 1), (2, 2, 501, 1), (3, 0, 0, 3)]
    found = rebuilt(*steps, budget=1000)
    assert list(found.prompt_tokens) == [833, 833, 833]
    assert list(found.output_tokens) == [4, 2, 2]
    assert len(rebuilt(*steps, budget=0).at_us) == 5


def test_drafts_make_a_step_yield_more_tokens():
    steps = [(0, 1, 50, 0), *((number, 0, 0, 1) for number in range(1, 11)), (11, 0, 0, 0)]
    assert list(rebuilt(*steps, accepted=2.5).output_tokens) == [26]


def test_requests_from_before_the_log_are_none():
    found = rebuilt((70, 1, 50, 8), (71, 0, 0, 9), (72, 0, 0, 1), (73, 0, 0, 0))
    assert list(found.prompt_tokens) == [50]
    assert list(found.output_tokens) == [3]


def test_another_start_begins_anew():
    counter = IterationCounter("server.log")
    take(counter, (0, 1, 50, 0), (1, 0, 0, 1))
    take(counter, (0, 1, 60, 0), begin_us=9_000_000)
    assert list(counter.requests().prompt_tokens) == [60]


def test_ranks_have_requests_of_their_own():
    counter = IterationCounter("server.log")
    take(counter, (0, 1, 50, 0), (1, 0, 0, 1), (2, 0, 0, 1), (3, 0, 0, 0), rank=Rank(dp=0))
    take(counter, (0, 1, 60, 0), (1, 0, 0, 1), (2, 0, 0, 0), rank=Rank(dp=1), begin_us=995_000)
    found = counter.requests()
    assert list(found.prompt_tokens) == [60, 50]
    assert list(found.output_tokens) == [2, 3]


def test_more_requests_than_any_server_has_are_refused():
    with pytest.raises(InputError, match=r"server.log: its steps have over 1,000,000 requests"):
        rebuilt((0, 1_000_001, 50, 0))


def test_a_real_server_gets_all_its_requests_again():
    """Their number and mean lengths exactly; most prompts; arrivals within 30 ms, in the mean."""
    log = open_server_log([REAL / "server.log.gz"])
    counter = IterationCounter(log.name)
    counter.budget = 8192
    for event in log.events():
        if event.kind is Kind.ITERATION:
            counter.take(event)
    found = counter.requests()
    sent = []
    for run in ("warm", "rate12", "stall", "neighbour"):
        with gzip.open(REAL / run / "measured.jsonl.gz", "rt", encoding="utf-8") as lines:
            of_run = [json.loads(line) for line in lines]
        sent.append(sorted(of_run, key=lambda request: request["arrival_s"]))
    requests = [request for of_run in sent for request in of_run]
    assert len(found.at_us) == len(requests) == 864
    outputs = [request["output_tokens"] for request in requests]
    assert sum(found.output_tokens) == sum(outputs)
    prompts = [request["prompt_tokens"] for request in requests]
    assert sum(found.prompt_tokens) == pytest.approx(sum(prompts), rel=1e-3)
    same = [one == other for one, other in zip(found.prompt_tokens, prompts, strict=True)]
    assert sum(same) > 0.75 * len(same)
    begin = len(sent[0])
    healthy = sent[1]
    late_ms = [
        at_us / 1e3 - 1e3 * request["arrival_s"]
        for at_us, request in zip(found.at_us[begin : begin + 280], healthy, strict=True)
    ]
    spread_ms = sorted(late - min(late_ms) for late in late_ms)
    assert spread_ms[len(spread_ms) * 9 // 10] < 50

"""Serving benchmarks' results: parallel arrays of one run."""

import json
from collections import Counter
from itertools import pairwise

import pytest

from sim.commands.import_results import sniff
from sim.families import family_of_server

ARRAYS = {
    "input_lens": [10, 20, 30],
    "output_lens": [3, 1, 4],
    "ttfts": [0.5, 0.25, 0.125],
    "itls": [[0.1, 0.2], [], [0.05, 0.05, 0.1]],
    "generated_texts": ["a b c", "d", "e f g h"],
    "errors": ["", "", ""],
}
VLLM = {
    "date": "20260131-120000",
    "endpoint_type": "openai",
    "backend": "openai",
    "model_id": "meta-llama/Llama-3.1-8B-Instruct",
    "num_prompts": 3,
    "request_rate": 2.5,
    "burstiness": 1.0,
    "max_concurrency": None,
    "duration": 2.0,
    **ARRAYS,
    "start_times": [353399.725, 353400.0, 353399.9],
}
SGLANG = {
    "backend": "sglang",
    "dataset_name": "random",
    "request_rate": float("inf"),
    "max_concurrency": None,
    "duration": 2.0,
    **ARRAYS,
}
MS = 1_000_000


def one_line(row, **changes):
    return json.dumps({key: value for key, value in {**row, **changes}.items() if value != "drop"})


def times_ms(requests):
    return [
        tuple(time / MS for time in (one.arrival_ns, one.first_token_ns, one.finish_ns))
        for one in requests
    ]


def test_vllm_results_give_arrivals_and_latencies(written, imported):
    """In order of sending, named by index; times are exact, even on a clock that shows days."""
    path = written(one_line(VLLM))
    assert sniff(path) == "vllm-bench"
    run, requests = imported(path)
    assert [one.rid for one in requests] == ["0", "2", "1"]
    assert times_ms(requests) == [(0, 500, 800), (175, 300, 500), (275, 525, 525)]
    assert [(one.prompt_tokens, one.output_tokens) for one in requests] == [
        (10, 3),
        (30, 4),
        (20, 1),
    ]
    assert family_of_server(run.facts.engines).name == "vllm"
    assert run.facts.model == "meta-llama/Llama-3.1-8B-Instruct"
    assert run.facts.other_settings["request_rate"] == pytest.approx(2.5)
    assert run.notes == ("prompts are not in the file: it is assumed that they share no prefix",)


def test_vllm_results_may_be_spread_over_lines(written, imported):
    """As `jq` prints a JSON object."""
    pretty = written(json.dumps(VLLM, indent=2))
    assert imported(pretty)[1] == imported(written(one_line(VLLM), "other"))[1]


def test_failed_requests_stay_with_the_tokens_they_got(written, imported):
    """One request broke off after two tokens, one never began, one gave no reason."""
    changes = {
        "output_lens": [0, 1, 0],
        "errors": ["Traceback:\n  File\nConnectionResetError: gone\n", "", ""],
        "itls": [[0.1], [], []],
        "ttfts": [0.5, 0.25, 0.0],
    }
    _, requests = imported(written(one_line(VLLM, **changes)))
    by_rid = {one.rid: one for one in requests}
    assert by_rid["0"].failure == "ConnectionResetError: gone"
    assert (by_rid["0"].output_tokens, by_rid["0"].finish_ns) == (2, None)
    assert by_rid["0"].first_token_ns == 500 * MS
    assert by_rid["0"].has_lengths
    assert by_rid["2"].failure == "no token came"
    assert (by_rid["2"].output_tokens, by_rid["2"].first_token_ns) == (0, None)
    assert not by_rid["2"].has_lengths
    assert by_rid["1"].failure == ""


def test_sglang_results_at_an_infinite_rate_were_sent_at_once(written, imported):
    """The times follow from the rate, so no start times are needed."""
    path = written(one_line(SGLANG))
    assert sniff(path) == "sglang-bench"
    run, requests = imported(path)
    assert times_ms(requests) == [(0, 500, 800), (0, 250, 250), (0, 125, 325)]
    assert any("all requests were sent at once" in note for note in run.notes)
    assert any("takes 0.80 s; it took 2.0 s" in note for note in run.notes)


def test_sglang_results_with_places_follow_from_the_latencies(written, imported):
    """With two slots the third request takes the slot that is free first."""
    _, requests = imported(written(one_line(SGLANG, max_concurrency=2)))
    assert times_ms(requests) == [(0, 500, 800), (0, 250, 250), (250, 375, 575)]


@pytest.mark.parametrize("key", ["start_times", "arrival_times"])
def test_sglang_results_of_patched_clients_tell_arrivals(written, imported, key):
    """If start times are there, rate and slots are ignored."""
    path = written(one_line(SGLANG, request_rate=4, **{key: [5.0, 5.5, 5.25]}))
    _, requests = imported(path)
    assert [(one.rid, one.arrival_ns // MS) for one in requests] == [
        ("0", 0),
        ("2", 250),
        ("1", 500),
    ]


def test_sglang_results_sent_at_random_are_refused(written, refusal):
    """Random arrivals are lost, and are drawn anew only if the user asks for it."""
    line = refusal(written(one_line(SGLANG, request_rate=4)))
    assert line == (
        "results:1: start_times: missing, and requests were sent at random times, which the"
        " file lacks; --draw-arrivals SEED draws times of the same distribution instead"
    )


def test_drawn_arrivals_are_of_the_rate_and_the_seed(written, imported):
    """Same seed, same times; the mean gap is the rate's; the latencies are as measured."""
    arrays = {key: list(values) * 400 for key, values in ARRAYS.items()}
    path = written(one_line(SGLANG, request_rate=4, **arrays))
    run, requests = imported(path, draw_arrivals=7)
    assert imported(path, draw_arrivals=7)[1] == requests
    assert imported(path, draw_arrivals=8)[1] != requests
    mean_gap_ms = requests[-1].arrival_ns / MS / (len(requests) - 1)
    assert mean_gap_ms == pytest.approx(250, rel=0.1)
    ttfts = Counter((one.first_token_ns - one.arrival_ns) // MS for one in requests)
    assert ttfts == {500: 400, 250: 400, 125: 400}
    assert run.notes[1].startswith("arrivals are drawn, not measured")


def test_drawn_arrivals_keep_to_the_places(written, imported):
    """With one slot no request is sent before the last one has ended."""
    path = written(one_line(VLLM, start_times="drop", max_concurrency=1, burstiness=4.0))
    _, requests = imported(path, draw_arrivals=1)
    assert [one.rid for one in requests] == ["0", "1", "2"]
    for before, after in pairwise(requests):
        assert after.arrival_ns >= before.finish_ns


def test_seed_for_arrivals_that_are_told_changes_nothing(written, imported):
    """A note says that the seed was not used."""
    run, requests = imported(written(one_line(VLLM)), draw_arrivals=3)
    assert times_ms(requests)[1] == (175, 300, 500)
    assert any("--draw-arrivals has no effect" in note for note in run.notes)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"ttfts": "drop"}, "results:1: ttfts: missing: results have it with --output-details"),
        ({"itls": 3}, "results:1: itls: 3 is not a list"),
        ({"itls": [[], [], 3]}, "results:1: itls[2]: 3 is not a list"),
        ({"itls": [[], [0.1, "x"], []]},
         'results:1: itls[1][1]: "x" is not a finite number of seconds'),
        ({"ttfts": [0.1, 0.2]}, "results:1: ttfts: 2 values, but input_lens has 3"),
        ({"ttfts": [0.1, -1, 0.2]}, "results:1: ttfts[1]: -1 s is not a possible time"),
        ({"ttfts": [0.1, float("nan"), 0]},
         "results:1: ttfts[1]: NaN is not a finite number of seconds"),
        ({"input_lens": [1, 2.5, 3]}, "results:1: input_lens[1]: 2.5 is not a whole number"),
        ({"output_lens": [1, True, 3]}, "results:1: output_lens[1]: true is not a whole number"),
        ({"errors": [1, "", ""]}, "results:1: errors[0]: 1 is not text"),
        ({"max_concurrency": 0}, "results:1: max_concurrency: 0 is not a whole number above 0"),
        ({"request_rate": -2}, "results:1: request_rate: -2 is not a number above 0"),
        ({"start_times": [1.0]}, "results:1: start_times: 1 values, but input_lens has 3"),
        ({key: [] for key in ARRAYS}, "results:1: input_lens: empty: no request was sent"),
    ],
)  # fmt: skip
def test_bad_results_are_refused_with_line_and_key(written, refusal, changes, line):
    assert refusal(written(one_line(SGLANG, **changes))) == line


def test_rate_that_is_no_number_gives_no_arrivals(written, refusal):
    """Such as `trace` of SGLang's replays, or vLLM's ramps."""
    trace = refusal(written(one_line(SGLANG, request_rate="trace")), draw_arrivals=1)
    assert trace == "results:1: request_rate: is not a rate, so no arrivals can be drawn"
    ramp = one_line(VLLM, start_times="drop", ramp_up_strategy="linear")
    assert refusal(written(ramp), draw_arrivals=1) == trace


def test_failed_request_among_places_leaves_arrivals_unknown(written, refusal):
    """The file does not say how long it kept its slot."""
    failed = one_line(SGLANG, max_concurrency=2, errors=["", "boom", ""])
    assert refusal(written(failed)).startswith(
        "results:1: start_times: missing, and request 1 failed at an unknown time"
    )


def test_file_of_several_runs_needs_a_line(written, imported, refusal):
    """A client that appends to its file leaves one run a line."""
    lines = [one_line(SGLANG), one_line(SGLANG, output_lens=[9, 9, 9]), ""]
    path = written("\n".join(lines))
    assert refusal(path) == "results: holds 2 runs, on lines 1, 2: say which with --line"
    assert refusal(path, line=5) == "results: --line 5: no run there"
    _, requests = imported(path, line=2)
    assert {one.output_tokens for one in requests} == {9}


def test_a_run_after_others_may_have_found_their_prompts(written, imported):
    """Prompts are not in the file; the same lengths hint at the same prompts."""
    runs = [SGLANG, {**SGLANG, "input_lens": [1, 2, 3]}, SGLANG, SGLANG]
    path = written("\n".join(map(one_line, runs)))
    found = [[note for note in imported(path, line=number)[0].notes if "before" in note]
             for number in (1, 2, 3, 4)]  # fmt: skip
    assert found[:2] == [[], []]
    assert "the run on line 1 sent prompts of the same lengths before" in found[2][0]
    assert "the run on lines 1, 3 sent" in found[3][0]


@pytest.mark.parametrize("row", [VLLM, SGLANG])
def test_results_without_gaps_have_the_mean_tpot(written, imported, row):
    """As InferenceX's client saves them: times to first tokens, and aggregates."""
    path = written(one_line(row, itls="drop", errors="drop", mean_tpot_ms=50.5))
    run, requests = imported(path)
    decoding = {one.rid: (one.finish_ns - one.first_token_ns) / MS for one in requests}
    assert decoding == {"0": 101, "1": 0, "2": 151.5}
    assert not any(one.failure for one in requests)
    assert any("decode at the mean TPOT 50.50 ms" in note for note in run.notes)


def test_aggregates_alone_are_refused(written, refusal):
    """There is nothing to replay."""
    path = written(one_line(VLLM, **dict.fromkeys(ARRAYS, "drop"), mean_tpot_ms=9))
    assert refusal(path) == ("results:1: input_lens: missing: results have it with --save-detailed")
    path = written(one_line(VLLM, itls="drop", mean_tpot_ms="x"))
    assert refusal(path) == 'results:1: mean_tpot_ms: "x" is not a number above 0'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[2026-06-11 04:58:53] server_args=ServerArgs(model_path='m', tp_size=8)\n",
         "is a log of SGLang's server without requests: it has them with --log-requests"),
        ("INFO 06-05 05:32:55 [utils.py:278] non-default args: {'model': 'm'}\n",
         "is a log of vLLM's server, which has no times of requests"),
    ],
)  # fmt: skip
def test_a_server_log_without_requests_is_named(written, refusal, text, reason):
    assert reason in refusal(written(f"starting\n{text}"))


def test_sglang_server_info_becomes_settings(written, imported):
    """The server's settings, and the pool size that it chose."""
    info = {
        "model_path": "Qwen/Qwen2.5-7B",
        "page_size": 64,
        "schedule_policy": "lpm",
        "context_length": None,
        "max_total_num_tokens": 123456,
        "scheduler_recv_interval": 30,
        "version": "0.5.8.post1",
        "tp_size": 2,
    }
    more = {"cache_report": {"total_cached_tokens": 5, "cache_hit_rate_pct": 12.5}}
    run, _ = imported(written(one_line(SGLANG, server_info=info, accept_length=2.5, **more)))
    assert run.facts.model == "Qwen/Qwen2.5-7B"
    assert run.facts.scheduler == {
        "page_size": 64,
        "schedule_policy": "lpm",
        "max_total_tokens": 123456,
        "scheduler_recv_interval": 30,
        "version": "0.5.9",
    }
    assert run.facts.other_settings["tp_size"] == 2
    assert run.facts.version == "0.5.8.post1"
    assert run.facts.tokens_at_a_time == 2.5
    assert any("found 12.5 %" in note for note in run.notes)


@pytest.mark.parametrize(
    ("backend", "engine"),
    [("sglang-oai-chat", "sglang"), ("vllm", "vllm"), ("vllm-chat", "vllm"), ("trt", "")],
)
def test_sglang_client_may_have_measured_another_server(written, imported, backend, engine):
    run, _ = imported(written(one_line(SGLANG, backend=backend)))
    family = family_of_server(run.facts.engines)
    assert (family.name if family else "") == engine

"""Results of GuideLLM, GenAI-Perf, LLMPerf and inference-perf.

GuideLLM's is what `guidellm run` 0.8.1 wrote of its own mock server, without the keys that are not
read. inference-perf's was dumped by the classes of 0.5.0. GenAI-Perf's was read by GenAI-Perf
0.0.16 too, which found the same TTFT, gaps and tokens. LLMPerf's has the keys of `f1d6bed`.
"""

import json

import pytest

from sim.commands.import_results import sniff


def guidellm_request(name, start, *, tokens=20, messages=20, turn=0, **info):
    """A request as `guidellm run` writes it."""
    body = {"model": "mock", "messages": [{"role": "user", "content": f"1 0 when {name}"}]}
    return {
        "request_id": name,
        "request_args": json.dumps({"method": None, "stream": True, "body": body}),
        "info": {
            "conversation_id": "talk",
            "turn_index": turn,
            "error": None,
            "timings": {
                "request_start": start,
                "first_token_iteration": start + 0.15,
                "last_token_iteration": start + 0.25,
                "token_iterations": messages,
                "request_end": start + 0.3,
            },
            **info,
        },
        "prompt_tokens": 9 + 40 * turn,
        "output_tokens": tokens,
    }


def guidellm(*benchmarks):
    """A report with these lists of requests by status."""
    return json.dumps(
        {
            "metadata": {"version": 2, "guidellm_version": "0.8.1"},
            "config": {"spec": {"backend": {"kind": "openai_http", "model": "mock"}}},
            "benchmarks": [
                {"config": {"strategy": {"type_": "concurrent", "streams": 2}}, "requests": each}
                for each in benchmarks
            ],
        }
    )


def test_guidellm_requests_of_all_statuses(written, imported):
    """Times are of the first and the last token; a request that was not sent is left out."""
    never = guidellm_request("never", 0)
    never["info"]["timings"] = dict.fromkeys(never["info"]["timings"])
    late = guidellm_request("late", 1795342814.5, tokens=3, error="Traceback\nTimeout: 60 s")
    path = written(
        guidellm(
            {
                "successful": [guidellm_request("one", 1795342813.25)],
                "incomplete": [never],
                "errored": [late],
            }
        )
    )
    assert sniff(path) == "guidellm"
    run, [one, failed] = imported(path)
    assert (one.rid, one.first_token_ns, one.finish_ns) == ("one", 150_000_000, 250_000_000)
    assert (one.prompt_tokens, one.output_tokens, one.failure) == (9, 20, "")
    assert (failed.arrival_ns, failed.finish_ns, failed.failure) == (
        1_250_000_000,
        None,
        "Timeout: 60 s",
    )
    assert (run.facts.model, run.facts.other_settings) == (
        "mock",
        {"type": "concurrent", "streams": 2},
    )
    assert run.facts.tokens_at_a_time is None


def test_guidellm_benchmarks_are_chosen_by_number(written, imported, refusal):
    """From 1 on."""
    lists = [{"successful": [guidellm_request(name, 5)]} for name in ("a", "b")]
    path = written(guidellm(*lists))
    assert refusal(path) == "results: holds 2 benchmarks: say which with --line N"
    assert refusal(path, line=3) == "results: --line 3: it has 2 benchmarks"
    _, [request] = imported(path, line=2)
    assert request.rid == "b"
    assert refusal(path, line=1, draw_arrivals=1).startswith("--draw-arrivals has no effect")


def test_guidellm_conversations_and_bundles(written, imported):
    """A later turn begins with the one before; more tokens than messages are marked."""
    turns = [guidellm_request(f"{turn}", 5 + turn, turn=turn, messages=10) for turn in (0, 1)]
    run, [first, later] = imported(written(guidellm({"successful": turns})))
    assert (first.session, later.session) == ("talk", "talk")
    assert "1 later turns begin with" in run.notes[0]
    assert run.facts.tokens_at_a_time == 2.0


INFERENCE_PERF = [
    {
        "start_time": 100.25,
        "end_time": 100.45,
        "request": '{"model": "m", "prompt": "hello world", "max_tokens": 4}',
        "response": None,
        "info": {
            "request_metrics": {"text": {"input_tokens": 7}, "image": None},
            "response_metrics": {
                "output_tokens": 5,
                "server_usage": {"prompt_tokens": 9, "completion_tokens": 4},
                "chunk_times": [100.30, 100.33, 100.36, 100.39],
                "output_token_times": [100.30, 100.33, 100.36, 100.39],
            },
            "input_tokens": 7,
        },
        "error": None,
    },
    {
        "start_time": 100.75,
        "end_time": 100.95,
        "request": "",
        "response": None,
        # As in reports of 0.2.
        "info": {"input_tokens": 7, "output_tokens": 2, "output_token_times": [100.8, 100.9]},
        "error": None,
    },
    {
        "start_time": 101.25,
        "end_time": 101.45,
        "request": "",
        "response": None,
        "info": {"input_tokens": 9, "response_metrics": None},
        "error": {"error_type": "ClientConnectorError", "error_msg": "refused"},
    },
]


@pytest.mark.parametrize("indent", [None, 2])
def test_inference_perf_requests(written, imported, indent):
    """The server's own counts are preferred; old reports have the times elsewhere."""
    path = written(json.dumps(INFERENCE_PERF, indent=indent))
    assert sniff(path) == "inference-perf"
    _, [new, old, failed] = imported(path)
    assert (new.first_token_ns, new.finish_ns) == (50_000_000, 140_000_000)
    assert (new.prompt_tokens, new.output_tokens) == (9, 4)
    assert (old.first_token_ns, old.finish_ns, old.output_tokens) == (550_000_000, 650_000_000, 2)
    assert (failed.finish_ns, failed.failure) == (None, "ClientConnectorError: refused")


def llmperf(latency, ttft=0.2, error=None):
    return {
        "error_code": error,
        "error_msg": "",
        "inter_token_latency_s": 0.03,
        "ttft_s": ttft,
        "end_to_end_latency_s": latency,
        "request_output_throughput_token_per_s": 30.0,
        "number_total_tokens": 580,
        "number_output_tokens": 30,
        "number_input_tokens": 550,
    }


def test_llmperf_clients_send_one_request_after_the_other(written, imported, refusal):
    """In order of completion: of two clients, one is done after 1 s, then the other after 1.5."""
    rows = [llmperf(1.0), llmperf(1.5), llmperf(1.0), llmperf(0.0, ttft=0, error=500)]
    path = written(json.dumps(rows, indent=4), "run_individual_responses.json")
    assert sniff(path) == "llmperf"
    assert "run_individual_responses.json: when requests were sent follows from" in refusal(path)
    written(json.dumps({"num_concurrent_requests": 2, "model": "m"}, indent=4), "run_summary.json")
    run, requests = imported(path)
    sent_s = {request.rid: request.arrival_ns / 1e9 for request in requests}
    assert sent_s == {"0": 0.0, "1": 0.0, "2": 1.0, "3": 2.0}
    assert [request.failure for request in requests] == ["", "", "", "error 500"]
    assert run.facts.model == "m"


def event(text, **more):
    choices = [{"index": 0, "delta": {"content": text}}]
    return {"response": f"data: {json.dumps({'choices': choices, **more})}\n\n"}


def genai_perf(*responses, payload=None):
    """A profile export with a request whose messages came 50 ms after it, then every 10 ms."""
    payload = payload or {"messages": [{"role": "user", "content": "the of and to in"}]}
    request = {
        "timestamp": 1_759_813_207_000_000_000,
        "request_inputs": {"payload": json.dumps({**payload, "model": "m"})},
        "response_timestamps": [
            1_759_813_207_050_000_000 + 10_000_000 * place for place in range(len(responses))
        ],
        "response_outputs": list(responses),
    }
    experiment = {"mode": "concurrency", "value": 4}
    return json.dumps(
        {
            "service_kind": "openai",
            "endpoint": "v1/chat/completions",
            "experiments": [{"experiment": experiment, "requests": [request]}],
            "version": "2.59.0",
        }
    )


def test_genai_perf_counts_messages_with_text(written, imported):
    """The first message is empty. Prompts are estimated, unless a file beside has their mean."""
    done = {"response": "data: [DONE]\n\n"}
    path = written(genai_perf(event(""), event(" the"), event(" of"), done), "profile_export.json")
    assert sniff(path) == "genai-perf"
    run, [request] = imported(path)
    assert (request.first_token_ns, request.finish_ns) == (60_000_000, 70_000_000)
    assert (request.prompt_tokens, request.output_tokens) == (4, 2)
    assert (run.facts.model, run.facts.other_settings) == ("m", {"concurrency": 4})
    written(json.dumps({"input_sequence_length": {"avg": 5.0}}), "profile_export_genai_perf.json")
    _, [request] = imported(path)
    assert request.prompt_tokens == 5


def test_genai_perf_takes_the_servers_counts(written, imported):
    """From its last message; more tokens than messages are marked."""
    usage = {"prompt_tokens": 6, "completion_tokens": 6}
    last = {"response": f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n"}
    run, [request] = imported(written(genai_perf(event("a b c"), event("d e f"), last)))
    assert (request.prompt_tokens, request.output_tokens) == (6, 6)
    assert run.facts.tokens_at_a_time == 3.0


def test_measured_runs_are_results_too(written, imported):
    """For clients of one's own: docs/how-to/measured.md has the keys."""
    row = {"rid": "a", "arrival_s": 2.0, "first_token_s": 2.5, "finish_s": 4.0}
    path = written(json.dumps({**row, "prompt_tokens": 10, "output_tokens": 4}))
    assert sniff(path) == "measured"
    _, [request] = imported(path)
    assert (request.first_token_ns, request.finish_ns) == (500_000_000, 2_000_000_000)


BAD = [
    (guidellm({"successful": [{**guidellm_request("a", 1), "prompt_tokens": -1}]}),
     "benchmarks[0].requests.successful[0].prompt_tokens: -1 is below 0"),
    (guidellm({"successful": 3}),
     "benchmarks[0].requests.successful: 3 is not a list"),
    (guidellm({"successful": []}), "benchmarks[0].requests: has no request that was sent"),
    (json.dumps([{**INFERENCE_PERF[0], "start_time": None}]), "[0].start_time: missing"),
    (json.dumps([{**INFERENCE_PERF[0], "info": 5}]), "[0].info: 5 is not an object"),
    (genai_perf().replace('"response_timestamps": []', '"response_timestamps": [5]'),
     "experiments[0].requests[0].response_outputs: 0 messages at 1 times"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "reason"), BAD)
def test_bad_documents_are_refused_with_the_path_of_keys(written, refusal, content, reason):
    assert refusal(written(content)) == f"results:1: {reason}"

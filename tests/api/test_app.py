"""OpenAI's interface, as clients see it."""

import asyncio
import json
from itertools import pairwise

import httpx
import numpy as np
import pytest

from sim.api.answer import Asked, EstimatedTokens
from sim.api.app import Api, ServerInfo
from sim.api.live_server import LiveServer
from sim.commands.recorded_scenario import TRAFFIC, write_traffic
from sim.des.deployment import Deployment
from sim.des.run import simulate
from sim.vllm.config import VllmConfig
from sim.workload.config import TraceConfig
from sim.workload.kinds.build import build_workload
from tests.support.serve import linear_latency


@pytest.fixture
def ask(server, clock, metrics):
    """Returns a function that sends requests while time passes, and returns the responses."""
    info = ServerInfo(model="tiny", checks_model=True)
    app = Api(server, EstimatedTokens(), metrics, info, server.flush_cache).app()

    async def pass_time():
        while True:
            clock.now_ns += 1_000_000
            server.catch_up()
            await asyncio.sleep(0)

    async def send(requests):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://tiny") as client:
            time = asyncio.ensure_future(pass_time())
            try:
                calls = [client.request(method, url, **how) for method, url, how in requests]
                return await asyncio.gather(*calls)
            finally:
                time.cancel()

    return lambda *requests: asyncio.run(send(requests))


def post(url, **body):
    return "POST", url, {"json": body}


def events(response):
    lines = [line for line in response.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def test_completion_has_as_many_tokens_as_asked_for(ask):
    (response,) = ask(post("/v1/completions", prompt="once upon", max_tokens=7, ignore_eos=True))
    assert response.status_code == 200
    reply = response.json()
    assert reply["object"] == "text_completion"
    assert reply["usage"]["completion_tokens"] == 7
    assert len(reply["choices"][0]["text"].split()) == 7
    assert reply["choices"][0]["finish_reason"] == "length"


def test_chat_ends_by_itself_and_a_second_turn_finds_the_first(ask):
    first = [{"role": "user", "content": "w" * 400}]
    (response,) = ask(post("/v1/chat/completions", messages=first))
    message = response.json()["choices"][0]["message"]
    assert response.json()["choices"][0]["finish_reason"] == "stop"
    more = [*first, message, {"role": "user", "content": [{"type": "text", "text": "more"}]}]
    (response,) = ask(post("/v1/chat/completions", messages=more))
    usage = response.json()["usage"]
    assert 0 < usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"]


@pytest.mark.parametrize(
    ("url", "body"),
    [
        ("/v1/completions", {"prompt": [5, 6, 7]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    ],
)
def test_stream_has_the_text_of_the_whole_reply_and_its_usage(ask, url, body):
    how = {"max_tokens": 20, "ignore_eos": True}
    options = {"stream": True, "stream_options": {"include_usage": True}}
    (whole,), (streamed,) = ask(post(url, **body, **how)), ask(post(url, **body, **how, **options))
    assert streamed.headers["content-type"].startswith("text/event-stream")
    *chunks, last = events(streamed)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == whole.json()["usage"]["completion_tokens"] == 20
    parts = [chunk["choices"][0] for chunk in chunks]
    assert [part["finish_reason"] for part in parts] == [None] * (len(parts) - 1) + ["length"]
    text = "".join(part.get("text", part.get("delta", {}).get("content")) for part in parts)
    assert len(text.split()) == 20
    assert len(parts) > 10


def test_many_at_once_are_all_answered(ask, server):
    body = {"prompt": "a" * 100, "max_tokens": 5, "stream": True}
    for response in ask(*[post("/v1/completions", **body) for _ in range(200)]):
        assert response.status_code == 200
        assert events(response)
    assert not server.live.engines[0].requests


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "JSON"),
        (b'{"prompt": ""}', "prompt"),
        (b'{"prompt": "a", "max_tokens": 0}', "max_tokens"),
        (b'{"prompt": ["a", "b"]}', "one prompt"),
        (b'{"prompt": "a", "n": 2}', "n: "),
        (b'{"prompt": [-1]}', "token ids"),
        (b'{"prompt": {"a": 1}}', "prompt: must be a text or a list of token ids"),
        (b'{"prompt": [1, "a"]}', "prompt.1: Input should be a valid integer"),
        (
            b'{"prompt": "a", "stop": [' + b'"a",' * 99 + b'"b"]}',
            "stop: List should have at most 64",
        ),
        (b'{"prompt": "a", "priority": %d}' % 2**31, "priority: "),
        (b'{"prompt": "a", "min_tokens": 9, "max_tokens": 8}', "at least 9 tokens"),
        (b'{"prompt": "a", "temperature": NaN}', "temperature: "),
        (b"[1]", "object"),
    ],
)
def test_bad_body_is_answered_with_one_line(ask, body, said):
    (response,) = ask(("POST", "/v1/completions", {"content": body}))
    assert response.status_code == 400
    message = response.json()["error"]["message"]
    assert said in message
    assert "\n" not in message


@pytest.mark.parametrize("stream", [True, False])
def test_prompt_that_is_too_long_is_refused(ask, stream):
    (response,) = ask(post("/v1/completions", prompt=[7] * 9000, stream=stream))
    assert response.status_code == 400
    assert "too long" in response.json()["error"]["message"]


def test_models_health_and_metrics(ask):
    asked = post("/v1/completions", prompt="a", max_tokens=3)
    ask(asked)
    models, health, metrics = ask(
        *[("GET", url, {}) for url in ("/v1/models", "/health", "/metrics")]
    )
    assert [model["id"] for model in models.json()["data"]] == ["tiny"]
    assert health.status_code == 200
    assert 'vllm:generation_tokens_total{model_name="tiny"} 3.0' in metrics.text
    assert 'vllm:num_requests_running{engine="0",model_name="tiny"} 0.0' in metrics.text
    assert 'vllm:inter_token_latency_seconds_count{model_name="tiny"} 2.0' in metrics.text


def test_other_model_does_not_exist_where_the_engine_checks_names(ask):
    known, *others = ask(
        ("GET", "/v1/models/tiny", {}),
        ("GET", "/v1/models/other", {}),
        post("/v1/completions", prompt="a", model="other"),
        post("/v1/chat/completions", messages=[{"role": "user", "content": "a"}], model="other"),
    )
    assert known.json()["id"] == "tiny"
    for response in others:
        assert response.status_code == 404
        assert response.json()["error"]["type"] == "NotFoundError"
        assert "'other' does not exist" in response.json()["error"]["message"]


def test_log_has_the_run_and_requests_that_were_under_way(server, clock):
    """They count as given up, and the run has their steps."""
    ids = np.arange(40)
    for max_tokens in (3, 500):
        server.ask(Asked(ids, max_tokens, ignore_eos=True))
        clock.now_ns += 100_000_000
        server.catch_up()
    log = server.log()
    assert log.requests.status == ["finished", "aborted"]
    assert log.requests.output_tokens[0] == 3
    assert 1 < log.requests.output_tokens[1] < 500
    assert log.requests.cached_tokens[1] > 0


@pytest.mark.parametrize("keeps_log", [True, False])
def test_times_of_tokens_are_kept_for_a_log_only(clock, metrics, keeps_log):
    """A server that runs for weeks would run out of memory with them."""
    deployment = Deployment.of_one_kind(VllmConfig(), [linear_latency()])
    server = LiveServer(
        deployment, iter(int, 1), metrics=metrics, clock_ns=clock, keeps_log=keeps_log
    )
    server.ask(Asked(np.arange(40), 20, ignore_eos=True))
    clock.now_ns += 10**12
    server.catch_up()
    gaps_ns, _, _ = server.live.engines[0].clock.take()
    assert len(gaps_ns.widened()) == (19 if keeps_log else 0)


def test_flushed_cache_has_no_prefix_and_fills_again(server, clock):
    def cached():
        answer = server.ask(Asked(np.arange(100), 2, ignore_eos=True))
        busy = server.flush_cache()
        clock.now_ns += 1_000_000_000
        server.catch_up()
        assert not busy
        return answer.cached_tokens

    assert [cached(), cached() > 0] == [0, True]
    assert server.flush_cache()
    assert [cached(), cached() > 0] == [0, True]


def test_sglangs_own_interface_streams_all_text_so_far(ask):
    params = {"max_new_tokens": 6, "ignore_eos": True}
    asked = post("/generate", input_ids=[5, 6, 7], sampling_params=params, stream=True)
    (response,) = ask(asked)
    replies = events(response)
    texts = [reply["text"] for reply in replies]
    assert all(after.startswith(before) for before, after in pairwise(texts))
    assert len(texts[-1].split()) == replies[-1]["meta_info"]["completion_tokens"] == 6
    assert replies[-1]["meta_info"]["finish_reason"] == {"type": "length", "length": 6}


def test_what_engines_clients_ask_for(ask):
    info, model, version, tokens = ask(
        ("GET", "/get_server_info", {}),
        ("GET", "/get_model_info", {}),
        ("GET", "/version", {}),
        post("/tokenize", prompt="a" * 40),
    )
    assert info.json()["internal_states"]
    assert model.json()["tokenizer_path"] == "tiny"
    assert "version" in version.json()
    assert tokens.json()["count"] == len(tokens.json()["tokens"]) == 10
    ids = [4097, 70_000, 5]
    (text,) = ask(post("/detokenize", tokens=ids))
    (again,) = ask(post("/tokenize", prompt=text.json()["prompt"]))
    assert again.json()["tokens"] == ids


def test_answer_has_min_tokens_though_its_length_is_less(ask):
    (response,) = ask(post("/v1/completions", prompt="a", max_tokens=30, min_tokens=9))
    assert response.json()["usage"]["completion_tokens"] == 9


def test_traffic_of_a_served_run_is_simulated_with_the_same_times(server, clock, tmp_path):
    """Also that of a client that went away."""
    answers = []
    for number in range(12):
        ids = np.arange(40 + number % 3)
        answers.append(server.ask(Asked(ids, 30, ignore_eos=number % 2 == 0)))
        clock.now_ns += 7_654_321
        if number == 8:
            server.cancel(answers[4])
    clock.now_ns += 1_000_000_000
    served = server.log().requests
    write_traffic(tmp_path, server.answered())
    workload = build_workload(TraceConfig(**TRAFFIC), seed=0, base_dir=tmp_path)
    again = simulate(workload, Deployment.of_one_kind(VllmConfig(), [linear_latency()])).requests
    assert again.status == served.status
    assert again.status.count("aborted") == 1
    for column in ("arrival_ns", "first_token_ns", "finish_ns", "cached_tokens", "output_tokens"):
        assert getattr(again, column).tolist() == getattr(served, column).tolist()

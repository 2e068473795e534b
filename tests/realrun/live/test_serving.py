"""A real model answers clients, and what it did can be decided again."""

import json
import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import torch

from realrun.live.texts import ByteTexts
from realrun.model.paged_model import load_model

VLLM = {
    "family": "vllm",
    "block_size": 8,
    "num_gpu_blocks_override": 257,
    "max_num_batched_tokens": 32,
    "max_num_seqs": 8,
    "max_model_len": 512,
}
DRAFTING = {
    **VLLM,
    "speculative_config": {
        "method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 2
    },
}  # fmt: skip
# A pool that few requests fill, so that some are put back, and mixed batches.
TIGHT = {
    "context_length": 256,
    "page_size": 8,
    "max_total_tokens": 224,
    "max_running_requests": 6,
    "schedule_conservativeness": 0.0,
    "clip_max_new_tokens": 8,
    "chunked_prefill_size": 32,
    "enable_mixed_chunk": True,
}


def generate(model, prompt, num_tokens):
    """Transformers' own greedy answer to a prompt."""
    ids = torch.tensor([prompt])
    limits = {"max_new_tokens": num_tokens, "do_sample": False, "pad_token_id": 0}
    out = model.generate(ids, attention_mask=torch.ones_like(ids), **limits)
    return out[0, len(prompt) :].tolist()


def events(response):
    lines = [line for line in response.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def text_of(chunks):
    return "".join(chunk["choices"][0]["text"] for chunk in chunks)


def test_greedy_answers_are_those_of_transformers(shared):
    """Alone and together, streamed and whole; the second of two equal prompts is cached."""
    prompts = [list(range(10, 50)), list(range(10, 50)), [7] * 9, list(range(90, 200, 3))]
    how = {"max_tokens": 12, "temperature": 0, "ignore_eos": True}
    shared.ask(prompts[0], **how)
    with ThreadPoolExecutor(4) as clients:
        replies = list(clients.map(lambda prompt: shared.ask(prompt, **how), prompts))
    assert [reply["usage"]["completion_tokens"] for reply in replies] == [12] * 4
    assert replies[1]["usage"]["prompt_tokens_details"]["cached_tokens"] >= 32
    assert replies[0]["choices"][0]["text"] == replies[1]["choices"][0]["text"]
    options = {"stream": True, "stream_options": {"include_usage": True}}
    body = {"prompt": prompts[2], **how, **options}
    *chunks, last = events(shared.http.post("/v1/completions", json=body))
    assert text_of(chunks) == replies[2]["choices"][0]["text"]
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert last["usage"]["completion_tokens"] == 12
    texts, model = ByteTexts(300), load_model(str(shared.model), device="cpu", dtype="float32")
    for prompt, reply in zip(prompts, replies, strict=True):
        # Transformers ends at the end token, which has no text there.
        expected = generate(model.model, prompt, 12)
        stream = texts.stream()
        text = stream.add(expected) + stream.end()
        assert reply["choices"][0]["text"][: len(text)] == text


@pytest.mark.parametrize("scheduler", [TIGHT, VLLM], ids=["tight sglang", "vllm"])
def test_random_answers_replay_and_do_not_depend_on_company(served, replays, scheduler):
    """Clients at once, some of whom go away; a seed gives the same answer alone."""
    server = served(scheduler)

    def body(number):
        return {"prompt": f"{'shared ' * 6}{number % 3}", "max_tokens": 30, "ignore_eos": False}

    def ask(number):
        if number % 4 == 3:
            server.leave_early({**body(number), "max_tokens": 120})
            return None
        return server.ask(**body(number), seed=number, temperature=1.5, top_p=0.9)

    with ThreadPoolExecutor(12) as clients:
        replies = list(clients.map(ask, range(16)))
    alone = server.ask(**body(5), seed=5, temperature=1.5, top_p=0.9)
    assert alone["choices"] == replies[5]["choices"]
    assert replies[5]["choices"] != replies[2]["choices"]
    recorded = replays(server.stop())
    statuses = Counter(line["status"] for line in recorded.requests)
    assert statuses["finished"] + statuses["aborted"] == 17
    assert statuses["aborted"] <= 4


def test_draft_tokens_change_no_answer(shared, served, replays):
    """Neither one that is drawn with a seed, nor the most likely one; stop texts end it, too."""
    server = served(DRAFTING)
    prompt = "again and again and again and"
    for how in ({"temperature": 0}, {"temperature": 0.3, "seed": 3}, {"seed": 5, "stop": "a"}):
        body = {"prompt": prompt, "max_tokens": 60, "ignore_eos": True, **how}
        assert server.ask(**body)["choices"] == shared.ask(**body)["choices"]
    lines = replays(server.stop(), rebuilds=False).requests
    assert sum(sum(line["accepted_by_step"]) for line in lines) > 0


def test_answer_ends_at_stop_texts_and_tokens(shared):
    """The text ends before them; a stop token counts, but has no text."""
    how = {"prompt": "tell", "temperature": 1, "seed": 4, "ignore_eos": True, "max_tokens": 40}
    whole = shared.ask(**how)["choices"][0]["text"]
    stop = whole[10:13]
    reply = shared.ask(**how, stop=["never there", stop])
    assert reply["choices"][0]["finish_reason"] == "stop"
    assert reply["choices"][0]["text"] == whole[: whole.index(stop)]
    assert reply["usage"]["completion_tokens"] < 40
    body = {**how, "stop": stop, "stream": True}
    streamed = shared.http.post("/v1/completions", json=body)
    assert text_of(events(streamed)) == reply["choices"][0]["text"]
    last = shared.ask(**how, stop_token_ids=list(range(300)))
    assert last["choices"][0] | {"logprobs": None} == {
        "index": 0, "text": "", "logprobs": None, "finish_reason": "stop"
    }  # fmt: skip
    assert last["usage"]["completion_tokens"] == 1


def test_client_that_goes_away_frees_its_pages(shared):
    """Nothing runs afterwards, and all pages are free or cached."""
    before = shared.metric("num_requests_total")
    for _ in range(8):
        shared.leave_early({"prompt": "x" * 30, "max_tokens": 450, "ignore_eos": True})
    num_asked = 0
    while shared.metric("num_running_reqs"):
        shared.ask("until it has noticed", max_tokens=9)
        num_asked += 1
    assert shared.metric("num_requests_total") - before < num_asked + 8
    assert shared.metric("token_usage") == 0


def test_reader_who_does_not_read_holds_nobody_up(shared):
    """Its answer is generated, and others are served meanwhile; it still gets all of it."""
    before = shared.metric("generation_tokens_total")
    body = json.dumps({"prompt": "slow", "max_tokens": 60, "ignore_eos": True, "stream": True})
    with shared.connect() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        slow.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            + f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        reply = shared.ask("longer", max_tokens=90, ignore_eos=True)
        assert reply["usage"]["completion_tokens"] == 90
        assert shared.metric("generation_tokens_total") - before == 150
        text = b"".join(iter(lambda: slow.recv(4096), b""))
    assert b"data: [DONE]" in text


@pytest.mark.parametrize(
    ("url", "body", "said"),
    [
        ("/v1/completions", {"prompt": [299, 300]}, "there is no token 300: the model has 300"),
        ("/v1/completions", {"prompt": [5] * 600}, "the context has 512 tokens"),
        ("/v1/completions", {"prompt": [5] * 500, "max_tokens": 13}, "the context has 512 tokens"),
        ("/v1/completions", {"prompt": [5] * 508, "max_tokens": 1}, "the prompt is too long"),
        ("/generate", {"input_ids": [5] * 600}, "the prompt is too long"),
        ("/v1/completions", {"prompt": "a", "presence_penalty": 1}, "presence_penalty is not"),
        ("/v1/completions", {"prompt": "a", "temperature": -1}, "temperature"),
        ("/v1/completions", {"prompt": "a", "stop": [""]}, "stop"),
        ("/v1/chat/completions", {"messages": []}, "messages"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_bad_request_is_answered_with_one_line(shared, url, body, said, stream):
    response = shared.http.post(url, json={**body, "stream": stream})
    assert response.status_code == 400
    message = response.json()["error"]["message"]
    assert said in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("scheduler", "options", "said"),
    [
        (VLLM, {"max_requests": 2}, "2 requests are under way"),
        ({**VLLM, "max_num_queued_reqs": 2}, {}, "the request queue is full"),
    ],
    ids=["front", "engine"],
)
def test_too_many_requests_are_refused_and_served_later(served, replays, scheduler, options, said):
    """By the HTTP front, or by the limits of the engine's own."""
    server = served(scheduler, **options)
    long = {"prompt": "x", "max_tokens": 450, "ignore_eos": True, "stream": True}
    with ExitStack() as open_streams:
        lines = []
        for _ in range(2):
            stream = server.http.stream("POST", "/v1/completions", json=long)
            lines.append(open_streams.enter_context(stream).iter_lines())
        refused = server.ask("y", max_tokens=1)
        assert refused.status_code == 503
        assert said in refused.json()["error"]["message"]
        assert [list(each)[-2] for each in lines] == ["data: [DONE]"] * 2
    assert server.ask("y", max_tokens=1)["usage"]["completion_tokens"] == 1
    assert len(replays(server.stop()).requests) == 3


def test_engines_own_interfaces_answer_too(shared):
    """SGLang's `/generate`; no end token before the least number of tokens; what the server is."""
    params = {"max_new_tokens": 9, "temperature": 0, "min_new_tokens": 4}
    some = {"input_ids": [9, 8], "sampling_params": {**params, "stop_token_ids": [*range(290)]}}
    reply = shared.http.post("/generate", json=some).json()
    assert reply["meta_info"]["completion_tokens"] == 5
    assert reply["meta_info"]["finish_reason"]["type"] == "stop"
    assert {int(word[1:], 16) // 290 for word in reply["text"].split()} == {1}
    info = shared.http.get("/get_server_info").json()
    assert (info["page_size"], info["max_total_num_tokens"]) == (8, 2048)


def test_conversation_finds_its_first_turn_in_the_cache(shared):
    """Without a tokenizer: bytes, and words for tokens that are none; the same tokens again."""
    first = [{"role": "user", "content": "é" * 60}]
    how = {"max_tokens": 20, "seed": 1}
    reply = shared.http.post("/v1/chat/completions", json={"messages": first, **how}).json()
    more = [*first, reply["choices"][0]["message"], {"role": "user", "content": "more"}]
    reply = shared.http.post("/v1/chat/completions", json={"messages": more, **how}).json()
    assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] >= 120
    models = shared.http.get("/v1/models").json()
    assert [model["id"] for model in models["data"]] == ["m.json"]
    assert shared.http.get("/health").status_code == 200

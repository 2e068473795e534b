"""Logs of conversations as text: ShareGPT and LMSYS."""

import json

import numpy as np
import pytest

from sim.core.tokens import stream_token_ids

HI, ANSWER, MORE, END = "a" * 40, "b" * 20, "c" * 8, "d" * 12


def shared(*texts, first="human"):
    speakers = ["human", "gpt"] if first == "human" else ["gpt", "human"]
    messages = [{"from": speakers[i % 2], "value": text} for i, text in enumerate(texts)]
    return {"id": "x", "conversations": messages}


def chat(*texts, **fields):
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    return {"conversation_id": "x", "conversation": messages} | fields


def lengths(turns):
    return [(len(t.request.spec.prompt), t.request.script.num_tokens) for t in turns]


def test_sharegpt_each_answer_is_a_request_that_repeats_the_conversation(trace):
    """Four characters a token; the end token of an answer is not quoted."""
    workload = trace("sharegpt", [shared(HI, ANSWER, MORE, END)])
    (turns,) = workload.clients
    assert lengths(turns) == [(10, 5), (10 + 4 + 2, 3)]
    asked, again = (t.request.spec.prompt.token_ids() for t in turns)
    assert np.array_equal(again[:10], asked)
    assert np.array_equal(again[10:14], stream_token_ids(turns[0].request.script.seed, 0, 4))
    assert workload.notes[0] == "token counts are estimates: 4 characters of text for each token"


def test_sharegpt_is_one_list_or_lines(trace, facts):
    """As published it is one JSON list, with or without line breaks."""
    rows = [shared(HI, ANSWER), shared(MORE, END, HI, ANSWER)]
    expected = facts(trace("sharegpt", rows))
    for text in (json.dumps(rows), json.dumps(rows, indent=2)):
        assert facts(trace("sharegpt", text.encode())) == expected


def test_sharegpt_texts_with_equal_beginnings_share_tokens(trace):
    """Up to the token in which they differ; the last token is each text's own."""
    rows = [shared("x" * 400 + name * 40, ANSWER) for name in "ab"]
    one, other = (r.spec.prompt.token_ids() for r in trace("sharegpt", rows).arrivals())
    assert (one == other).tolist() == [True] * 100 + [False] * 10


def test_conversations_need_a_question_and_an_answer(trace):
    """What comes before the first question, or again after an answer, is text of the next one."""
    rows = [
        shared(ANSWER, HI, ANSWER, MORE, first="gpt"),
        shared(HI, "", MORE, END),
        shared(HI),
    ]
    workload = trace("sharegpt", rows)
    assert [lengths([r]) for r in _requests(workload)] == [[(15, 5)], [(12, 3)]]
    assert workload.notes[-1] == "2 answers without text or question are no requests"


def _requests(workload):
    class Only:
        def __init__(self, request):
            self.request = request

    return [Only(request) for request in workload.arrivals()]


@pytest.mark.parametrize(("options", "turns"), [({"max_turns": 1}, [1, 1]), ({"limit": 3}, [2, 1])])
def test_conversations_can_be_cut(trace, options, turns):
    """The first turn alone is what SGLang's and vLLM's benchmarks send."""
    workload = trace("sharegpt", [shared(HI, ANSWER, MORE, END)] * 2, **options)
    found = [len(client) for client in workload.clients] or [1] * workload.num_requests
    assert found == turns


def test_conversations_think_and_arrive_as_the_scenario_says(trace):
    """The texts have no times."""
    options = {
        "arrivals": {"kind": "constant", "rate_rps": 4},
        "think_s": {"kind": "constant", "value": 2.5},
    }
    found = trace("lmsys", [chat(HI, ANSWER, MORE, END)] * 2, **options).clients
    assert [[t.think_ns / 1e9 for t in turns] for turns in found] == [[0, 2.5], [0.25, 2.5]]


def test_lmsys_times_count_from_the_earliest(trace):
    """Seconds, or ISO 8601 with a time zone."""
    rows = [
        chat(HI, ANSWER, timestamp="2023-04-09T14:48:05+02:00"),
        chat(HI, ANSWER, tstamp=1681044483.5),
    ]
    requests = list(trace("lmsys", rows, time_scale=2).arrivals())
    assert [r.spec.arrival_ns / 1e9 for r in requests] == [0, 3]


def test_lmsys_messages_may_be_lists_of_parts(trace):
    """As gateways log them; a call of a tool has no text."""
    parts = [{"type": "text", "text": HI}, {"type": "image_url"}, "x"]
    row = {
        "messages": [
            {"role": "user", "content": parts},
            {"role": "assistant", "content": None},
            {"role": "tool", "content": MORE},
            {"role": "Assistant", "content": END},
        ]
    }
    (request,) = trace("lmsys", [row]).arrivals()
    assert (len(request.spec.prompt), request.script.num_tokens) == (12, 3)


def test_conversations_tokenizer_counts_real_tokens(trace, tmp_path):
    """Any tokenizer.json, or the folder of a model that has one."""
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.models.WordLevel({"[UNK]": 0, "how": 1, "are": 2, "you": 3}, "[UNK]")
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.enable_truncation(2)
    (tmp_path / "model").mkdir()
    tokenizer.save(str(tmp_path / "model" / "tokenizer.json"))
    workload = trace("lmsys", [chat("how are you", "you are you are")], tokenizer="model")
    (request,) = workload.arrivals()
    assert request.spec.prompt.token_ids().tolist() == [1, 2, 3]
    assert request.script.num_tokens == 4
    assert workload.notes[0] == "tokens are those of model"


BAD = [
    ({}, "conversation: missing"),
    ({"conversation": "hi"}, 'conversation: "hi" is not a list'),
    ({"conversation": [1]}, "conversation[0]: 1 is not an object"),
    ({"messages": [{"role": 3}]}, "messages[0].role: 3 is not text"),
    ({"messages": [{"role": "user"}]}, "messages[0].content: missing"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content: 5 is not text"),
    (chat(HI, ANSWER, timestamp=1), "timestamp: some conversations have one and some do not"),
    ('{"conversation": [1 2', "malformed JSON: Expecting ',' delimiter"),
    ('{"a": 1, "a": 2}', '"a": occurs twice'),
    ("[1]", "not a JSON object"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_conversations_bad_row_names_line_and_place(error_of, bad, reason):
    """Lines count from 1."""
    assert error_of("lmsys", [chat(HI, ANSWER), bad]) == f"t:2: {reason}"


def test_conversations_bad_tokenizer_is_named(error_of, tmp_path):
    """It is a file of its own."""
    pytest.importorskip("tokenizers")
    (tmp_path / "tokenizer.json").write_text("{}")
    line = error_of("lmsys", [chat(HI, ANSWER)], tokenizer="tokenizer.json")
    assert line.startswith("tokenizer.json: is no tokenizer: ")


@pytest.mark.parametrize("text", ["[{}] x", "[{} {}]", "[{},]", '[{"a": "' + "x" * 3_000_000])
def test_conversations_malformed_list_is_refused(error_of, text):
    """Whatever is wrong, it is said in one line."""
    texts = text.replace("{}", json.dumps(shared(HI, ANSWER)))
    assert error_of("sharegpt", texts.encode()).startswith("t:1: ")


def test_conversations_of_many_megabytes_are_read_part_by_part(trace):
    """Objects lie across the parts in which the file is read, characters too."""
    rows = [shared("ü" * 700_001, ANSWER) for _ in range(5)]
    text = json.dumps(rows, ensure_ascii=False).encode()
    requests = list(trace("sharegpt", text).arrivals())
    assert [len(r.spec.prompt) for r in requests] == [175_000] * 5

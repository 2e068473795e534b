"""Bodies: how long they may be, and where long ones are read."""

import asyncio
import json
import threading

import httpx
import pytest
from pydantic import ValidationError

from sim.api import bodies as read_body
from sim.api.answer import EstimatedTokens
from sim.api.app import Api, ServerInfo
from sim.api.bodies import ChatBody, CompletionBody, GenerateBody

LONG_TEXT = "a" * (1 << 16)


@pytest.fixture
def ask(server, metrics):
    """Returns a function that sends the bodies at once and returns their responses, in order."""

    async def send(api, bodies):
        transport = httpx.ASGITransport(api.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://tiny") as client:
            calls = [client.post("/tokenize", content=body) for body in bodies]
            return await asyncio.gather(*calls)

    def ask(*bodies, texts=None, context=None):
        info = ServerInfo(model="tiny", max_tokens=context)
        return asyncio.run(send(Api(server, texts or EstimatedTokens(), metrics, info), bodies))

    return ask


def asking(prompt):
    return json.dumps({"prompt": prompt}).encode()


@pytest.mark.parametrize(("context", "most_bytes"), [(1000, 1_096_576), (10**9, 64 << 20)])
def test_longest_body_follows_from_the_context(ask, context, most_bytes):
    """48 bytes for each token and a mebibyte for all else, but at most 64 MiB."""
    fits = asking("a").ljust(most_bytes)
    taken, refused = ask(fits, fits + b" ", context=context)
    assert taken.status_code == 200
    assert refused.status_code == 413
    assert f"{most_bytes:,} bytes" in refused.json()["error"]["message"]


def test_body_with_more_values_than_a_context_has_tokens_is_not_parsed(ask):
    """Parsed, a list of small numbers takes fifty times the memory of its text."""
    values = b'{"prompt": "a", "x": [' + b"1," * 70_000 + b"1]}"
    (refused,) = ask(values, context=1000)
    assert refused.status_code == 400
    assert "more than 69,536 values" in refused.json()["error"]["message"]
    assert ask(values, context=2000)[0].status_code == 200


def test_text_that_cannot_fit_is_not_cut_into_tokens(ask):
    """A tokenizer would take seconds for a text that is refused then."""
    most = 65_536 + 16 * 1000
    taken, refused = ask(asking("a" * most), asking("a" * (most + 1)), context=1000)
    assert taken.status_code == 200
    assert refused.status_code == 400
    assert f"more than {most:,} characters" in refused.json()["error"]["message"]


def test_conversation_that_cannot_fit_is_not_cut_into_tokens(ask):
    messages = [{"role": "user", "content": "a" * 30_000}] * 3
    (refused,) = ask(json.dumps({"messages": messages}).encode(), context=1000)
    assert refused.status_code == 400
    assert "more than 81,536 characters" in refused.json()["error"]["message"]


def test_body_with_more_texts_than_a_conversation_has_is_not_parsed(ask):
    """While a hundred thousand messages are parsed, no other client is answered."""
    refused, taken, quotes = ask(
        json.dumps({"messages": [{"role": "u", "content": "a"}] * 16_384}).encode(),
        json.dumps({"messages": [{"role": "u", "content": "a"}] * 16_383}).encode(),
        asking('"' * 200_000),
        context=10**6,
    )
    assert refused.status_code == 400
    assert "more than 65,536 texts" in refused.json()["error"]["message"]
    assert taken.status_code == 200
    assert quotes.status_code == 200


def test_other_clients_are_answered_while_a_long_text_is_cut_into_tokens(ask):
    """The long text waits, in its thread, for the short one that was sent after it."""
    short_is_done = threading.Event()

    class Waiting(EstimatedTokens):
        def __deepcopy__(self, memo):
            return self

        def tokens(self, text):
            if text == LONG_TEXT:
                assert short_is_done.wait(60)
            else:
                short_is_done.set()
            return super().tokens(text)

    long, short = ask(asking(LONG_TEXT), asking("short"), texts=Waiting())
    assert (long.status_code, short.status_code) == (200, 200)
    assert long.json()["count"] == 1 << 14


def test_no_two_threads_use_a_tokenizer(ask):
    """Those of transformers allow one at a time."""

    class Noting(EstimatedTokens):
        def __init__(self):
            self.threads = set()
            noted.append(self)

        def __deepcopy__(self, memo):
            return Noting()

        def tokens(self, text):
            self.threads.add(threading.get_ident())
            return super().tokens(text)

    noted = []
    ask(asking(LONG_TEXT), asking("short"), asking(LONG_TEXT), texts=Noting())
    assert [len(each.threads) for each in noted] == [1, 1]
    assert noted[0].threads != noted[1].threads


def test_too_many_long_bodies_at_once_are_refused_but_not_short_ones(ask, monkeypatch):
    monkeypatch.setattr(read_body, "_MOST_HELD", 1 << 15)
    long, short = ask(asking(LONG_TEXT), asking("short"))
    assert long.status_code == 503
    assert "too many long bodies" in long.json()["error"]["message"]
    assert short.status_code == 200


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (CompletionBody, {"prompt": [1, *["a"] * 1000]}),
        (GenerateBody, {"input_ids": ["a"] * 1000}),
        (ChatBody, {"messages": [{"role": "user"}, *[{}] * 1000]}),
        (ChatBody, {"messages": [{"role": "user", "content": [{}] * 1000}]}),
    ],
)
def test_long_list_of_wrong_elements_is_one_error(kind, body):
    """Or one for each key and type that is tried."""
    with pytest.raises(ValidationError) as wrong:
        kind.model_validate(body)
    assert wrong.value.error_count() <= 3

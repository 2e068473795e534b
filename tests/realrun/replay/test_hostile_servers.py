"""`realrun replay` with servers that do not keep to the interface: a clear reason, no crash."""

import asyncio
import json

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from realrun.replay.answers import Received, ask
from realrun.replay.server_facts import ask_server
from sim.core.errors import InputError
from sim.core.files import json_text


def against(routes, client):
    """The result of `client(session, url)` before a server with these routes."""

    async def run():
        app = web.Application()
        app.add_routes(routes)
        async with TestServer(app) as server, aiohttp.ClientSession() as session:
            return await client(session, str(server.make_url("")).rstrip("/"))

    return asyncio.run(run())


def events(*chunks):
    """A server whose answers are these events."""

    async def answer(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(b"data: " + chunk + b"\n\n")
        return response

    return answer


def status(number, body, **headers):
    async def answer(_request):
        return web.Response(status=number, body=body, headers=headers)

    return answer


TOKEN = b'{"choices": [{"text": "x"}]}'


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (events(TOKEN, TOKEN, b"[DONE]"), ""),
        (events(b"[DONE]"), "has no token"),
        (events(b"{nope"), "is no chunk of a completion"),
        (events(b'{"choices": 5}'), "is no chunk of a completion"),
        (events(b'{"usage": {"completion_tokens": -3}}'), "is no chunk of a completion"),
        (events(b'{"usage": {"completion_tokens": 1000000000}}'), "more than the 4 tokens"),
        (events(TOKEN, b'{"error": {"message": "out of memory"}}'), "out of memory"),
        (events(b" " * (3 << 20)), "bytes when reading"),
        (status(429, b'{"error": {"message": "too many"}}'), "status 429: too many"),
        (status(500, b"\xff" * 100), "status 500"),
        (status(307, b"", Location="http://elsewhere"), "a redirect to http://elsewhere"),
    ],
)
def test_answer_is_noted_or_has_a_reason(answer, failure):
    async def client(session, url):
        received = Received("0", 0, 4)
        await ask(session, url, {}, received, lambda: 1, 60)
        return received

    received = against([web.post("/", answer)], client)
    assert failure in received.failure
    assert "\n" not in received.failure
    assert (received.end_ns is None) == bool(failure) or failure == "has no token"


def test_answer_that_stops_has_failed_after_the_time_out():
    async def answer(request):
        await events(TOKEN)(request)
        await asyncio.Event().wait()

    async def client(session, url):
        received = Received("0", 0, 4)
        await ask(session, url, {}, received, lambda: 1, 0.01)
        return received

    received = against([web.post("/", answer)], client)
    assert received.failure == "no token came for 0.01 s"
    assert received.end_ns is None


@pytest.mark.parametrize(
    ("models", "said"),
    [
        (status(200, b"<html>"), "names no model"),
        (status(200, b'{"data": {"a": 1}}'), "names no model"),
        (status(200, b'{"data": [5]}'), "names no model"),
        (status(401, b'{"error": {"message": "no key"}}'), "status 401: no key"),
    ],
)
def test_server_without_a_model_is_refused(models, said):
    with pytest.raises(InputError, match=said):
        against([web.get("/v1/models", models)], lambda *where: ask_server(*where, None))


@pytest.mark.parametrize(
    "settings",
    [b"[" * 100_000, b'{"page_size": NaN}', b'{"page_size": 1e999}', b'{"version": "\\ud800"}'],
)
def test_unreadable_settings_and_metrics_are_left_out(settings):
    routes = [
        web.get("/v1/models", status(200, json.dumps({"data": [{"id": "m"}]}).encode())),
        web.get("/server_info", status(200, settings)),
        web.get("/get_server_info", status(200, b"5")),
        web.get("/metrics", status(200, b"\xff\xfe")),
    ]
    asked = against(routes, lambda *where: ask_server(*where, None))
    assert (asked.model, asked.settings) == ("m", {})
    json_text(asked.as_json()).encode()
    assert asked.facts.model == "m"


MODELS = web.get("/v1/models", status(200, b'{"data": [{"id": "m"}]}'))


@pytest.mark.parametrize("path", ["/server_info", "/get_server_info", "/version", "/metrics"])
def test_what_a_server_says_of_itself_is_not_looked_for_elsewhere(path):
    """A redirect could lead to addresses that only the user's machine reaches."""
    secret = status(200, b'{"page_size": 16, "version": "0.33.0"}')
    routes = [
        MODELS,
        web.get("/secret", secret),
        web.get(path, status(302, b"", Location="/secret")),
    ]
    asked = against(routes, lambda *where: ask_server(*where, None))
    assert (asked.settings, asked.version, asked.metrics) == ({}, "", {})


@pytest.mark.parametrize(
    "labels", [b"a" * 2_000_000, b'"' * 2_000_000, b'a="' * 700_000, b'a="b"' * 400_000]
)
def test_long_labels_of_a_metric_take_time_in_proportion_to_their_length(labels):
    routes = [
        MODELS,
        web.get("/metrics", status(200, b"vllm:cache_config_info{" + labels + b"} 1")),
    ]
    asked = against(routes, lambda *where: ask_server(*where, None))
    assert asked.facts.scheduler == {}


def test_settings_of_the_cache_are_read_from_labels():
    labels = b'block_size="16",cache_dtype="auto",enable_prefix_caching="True",num_gpu_blocks="99"'
    shown = b"vllm:other 1\nvllm:cache_config_info{" + labels + b"} 1.0\n"
    asked = against(
        [MODELS, web.get("/metrics", status(200, shown))], lambda *where: ask_server(*where, None)
    )
    assert asked.facts.scheduler == {
        "block_size": 16,
        "num_gpu_blocks_override": 99,
        "enable_prefix_caching": True,
    }


def test_server_info_of_vllm_is_not_taken_for_that_of_sglang():
    """vLLM has this address, too, with VLLM_SERVER_DEV_MODE=1; its settings are one text."""
    routes = [
        MODELS,
        web.get("/server_info", status(200, b'{"vllm_config": "model=\'m\', seed=0"}')),
        web.get("/version", status(200, b'{"version": "0.26.0"}')),
    ]
    asked = against(routes, lambda *where: ask_server(*where, None))
    assert asked.facts.engines == ("vllm",)
    assert asked.facts.other_settings == {"version": "0.26.0"}

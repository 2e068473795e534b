"""Clients over real sockets: many, slow, gone, and confused ones."""

import asyncio
import json
import socket

import aiohttp
import openai
import pytest

from realrun.replay.run import ReplayOptions, replay
from sim.api.http_server import listen
from sim.workload.workload import every_request, listed
from tests.support.workloads import scripted

LONG = {"prompt": [5] * 40, "max_tokens": 2000, "ignore_eos": True, "stream": True}


def head(body, length=None, path="/v1/completions"):
    length = len(body) if length is None else length
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode() + body


async def send(port, data):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    await writer.drain()
    return reader, writer


async def all_over(server):
    """Wait until no request is under way."""
    while server.live.engines[0].requests:
        await asyncio.sleep(0)


def check_nothing_leaks(server):
    engine = server.live.engines[0]
    assert not engine.requests
    kv = engine.kv
    assert kv.free_tokens + kv.evictable_tokens == kv.pool_tokens


def test_two_hundred_streams_with_slow_and_vanishing_readers(server, over_sockets):
    """Every client that stays gets all its tokens; the requests of the others end."""

    async def stays(session, number):
        body = {"prompt": [number + 7] * 30, "max_tokens": 20, "ignore_eos": True, "stream": True}
        async with session.post("/v1/completions", json=body) as response:
            text = await response.text()
        return text.count('"text":" w')

    async def vanishes(port, number):
        reader, writer = await send(port, head(json.dumps(LONG).encode()))
        if number % 2:  # with the first tokens; the others go before they have any
            await reader.readuntil(b"data: ")
        writer.transport.abort()

    async def is_slow(port):
        """Reads nothing until all others have their answers."""
        return await send(port, head(json.dumps({**LONG, "max_tokens": 300}).encode()))

    async def clients(port):
        slow, slow_writer = await is_slow(port)
        url = f"http://127.0.0.1:{port}"
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(url, connector=connector) as session:
            gone = [vanishes(port, number) for number in range(40)]
            counts = await asyncio.gather(*[stays(session, n) for n in range(160)], *gone)
        await all_over(server)
        text = (await slow.readuntil(b"[DONE]")).decode()
        slow_writer.close()
        return [count for count in counts if count is not None], text.count(" w")

    counts, slow = over_sockets(clients)
    assert len(counts) == 160
    assert set(counts) <= set(range(1, 21))  # some tokens may come together
    assert slow == 300
    check_nothing_leaks(server)


@pytest.mark.parametrize(
    ("data", "status", "said"),
    [
        (head(b"\xff\xfe"), 400, "JSON"),
        (head(b"[" * 100_000), 400, "JSON"),
        (head(b'{"prompt": "a", "max_tokens": 1e999}'), 400, "max_tokens"),
        (head(b'{"text": "a", "input_ids": [1]}', path="/generate"), 400, "one of text"),
        (head(b"{}", path="/tokenize"), 400, "one of prompt"),
        (head(b"{}", path="/v2/none"), 404, "Not Found"),
        (head(b"{}", path="/health"), 405, "Not Allowed"),
    ],
)
def test_malformed_request_is_answered_as_openai_does(over_sockets, data, status, said):
    async def clients(port):
        reader, writer = await send(port, data)
        top = await reader.readuntil(b"\r\n\r\n")
        length = int(top.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        body = await reader.readexactly(length)
        writer.close()
        return int(top.split()[1]), json.loads(body)

    got, reply = over_sockets(clients)
    assert got == status
    assert said in reply["error"]["message"]
    assert reply["error"]["code"] == status


def test_connections_send_each_packet_at_once():
    """Without it a short answer takes 40 ms longer."""
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_half_a_body_and_no_http_at_all_do_no_harm(server, over_sockets):
    async def clients(port):
        for data in (head(b'{"prompt":', length=1000), b"\x16\x03\x01 hello\r\n\r\n"):
            _, writer = await send(port, data)
            writer.transport.abort()
        client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none")
        async with client:
            return await client.completions.create(model="tiny", prompt="a", max_tokens=3)

    assert over_sockets(clients).usage.completion_tokens == 3
    check_nothing_leaks(server)


def test_body_that_does_not_come_is_answered_and_its_connection_closed(server, over_sockets):
    async def clients(port):
        reader, writer = await send(port, head(b'{"prompt":', length=1000))
        reply = await reader.read()  # to the end of the connection
        writer.close()
        return reply

    reply = over_sockets(clients, body_limit_s=0)
    assert reply.startswith(b"HTTP/1.1 408 ")
    assert b"the body took more than 0 s" in reply
    check_nothing_leaks(server)


def test_openai_package_understands_streams_and_errors(over_sockets):
    async def clients(port):
        client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none")
        async with client:
            models = await client.models.list()
            stream = await client.chat.completions.create(
                model=models.data[0].id,
                messages=[{"role": "user", "content": "hello"}],
                max_completion_tokens=9,
                stream=True,
                stream_options={"include_usage": True},
                extra_body={"ignore_eos": True},
            )
            chunks = [chunk async for chunk in stream]
            with pytest.raises(openai.BadRequestError, match="n: "):
                await client.completions.create(model="tiny", prompt="a", n=2)
            return chunks

    *parts, last = over_sockets(clients)
    assert last.usage.completion_tokens == 9
    assert len("".join(part.choices[0].delta.content for part in parts).split()) == 9
    assert parts[-1].choices[0].finish_reason == "length"


def test_replay_brings_every_token_of_the_workload(server, over_sockets):
    requests = [
        scripted(f"r{number}", (number % 3, 40), output=5 + number, ignore_eos=True)
        for number in range(12)
    ]
    workload = listed(requests)

    async def clients(port):
        return await replay(workload, ReplayOptions(url=f"http://127.0.0.1:{port}/v1"))

    done = over_sockets(clients)
    assert {each.rid: each.output_tokens for each in done.requests} == {
        each.spec.rid: each.script.num_tokens for each in every_request(workload)
    }
    for each, times_ns in zip(done.requests, done.token_ns, strict=True):
        assert not each.failure
        assert times_ns == sorted(times_ns)
        assert each.arrival_ns <= each.first_token_ns == times_ns[0]
    assert done.server.model == "tiny"
    assert "vllm:" in done.server.metrics["after"]
    check_nothing_leaks(server)

"""Who is answered: host names, pages of other sites, and the key."""

import asyncio

import httpx
import openai
import pytest
from starlette.responses import Response

from sim.api.address import Address
from sim.api.guard import Guard

KEY = {"authorization": "Bearer secret"}


def status(method="GET", path="/", *, headers=None, **address):
    """What a guarded application answers."""
    guarded = Guard(Response("answered"), Address(**address))

    async def send():
        transport = httpx.ASGITransport(guarded)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return (await client.request(method, path, headers=headers)).status_code

    return asyncio.run(send())


@pytest.mark.parametrize(
    ("host", "answered"),
    [
        ("127.0.0.1:8000", True),
        ("10.1.2.3", True),
        ("[::1]:8000", True),
        ("[2001:db8::1]", True),
        ("localhost:8000", True),
        ("servetwin:8000", True),
        ("twin.models.svc.cluster.local", True),
        ("twin.models.svc:80", True),
        ("host.docker.internal:8000", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example:8000", False),
        ("local.evil.example", False),
        ("[::1", False),
    ],
)
def test_private_hosts_are_answered_and_public_ones_not(host, answered):
    """A page could let a public name lead here; addresses and private names it cannot."""
    assert status(headers={"host": host}) == (200 if answered else 403)


@pytest.mark.parametrize(
    ("given", "host", "answered"),
    [
        ("Twin.Example", "twin.example:8000", True),
        ("twin.example", "other.twin.example", False),
        ("*.twin.example", "a.twin.example", True),
        ("*.twin.example", "eviltwin.example", False),
        ("*", "evil.example", True),
    ],
)
def test_allowed_hosts_are_answered(given, host, answered):
    found = status(headers={"host": host}, allowed_host=["other.example", given])
    assert found == (200 if answered else 403)


def test_the_name_that_the_server_listens_on_is_allowed():
    assert status(headers={"host": "gpu1.example:80"}, host="gpu1.example") == 200


@pytest.mark.parametrize(
    ("origin", "answered"),
    [
        (None, True),  # no browser: curl, the package openai, benchmarks
        ("http://127.0.0.1:8000", True),
        ("https://127.0.0.1:8000", True),  # behind a proxy
        ("http://127.0.0.1:3000", False),
        ("http://evil.example", False),
        ("null", False),
        ("http://[::1", False),
        ("https://chat.example", True),
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_pages_of_other_sites_send_nothing(method, origin, answered):
    headers = {"host": "127.0.0.1:8000"} | ({} if origin is None else {"origin": origin})
    found = status(method, headers=headers, allowed_host=["chat.example"])
    assert found == (200 if answered else 403)


BROWSER = {"user-agent": "Mozilla/5.0 (X11; Linux x86_64)"}


@pytest.mark.parametrize(
    ("headers", "answered"),
    [
        ({"user-agent": "curl/8.5.0"}, True),
        ({"user-agent": "python-requests/2.34.2"}, True),
        (BROWSER | {"sec-fetch-site": "none"}, True),  # typed in by a person
        (BROWSER | {"sec-fetch-site": "same-origin"}, True),
        (BROWSER | {"sec-fetch-site": "cross-site"}, False),
        (BROWSER | {"sec-fetch-site": "same-site"}, False),  # another port of this machine
        (BROWSER, False),  # to an address of a network a browser says no more
        (BROWSER | {"sec-fetch-site": "cross-site", "origin": "http://evil.example"}, False),
        ({"origin": "http://evil.example"}, False),
        (BROWSER | {"sec-fetch-site": "cross-site", "origin": "https://chat.example"}, True),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_pages_of_other_sites_do_not_flush_the_cache_by_get(method, headers, answered):
    """As a picture's address, for example. All else that is got changes nothing."""
    options = {"headers": headers, "allowed_host": ["chat.example"]}
    assert status(method, "/flush_cache", **options) == (200 if answered else 403)
    assert status(method, "/v1/models", **options) == 200
    assert status(method, "/flush_cache", headers=headers, allowed_host=["*"]) == 200


@pytest.mark.parametrize(
    ("headers", "path", "expected"),
    [
        ({}, "/v1/models", 401),
        ({"authorization": "Bearer wrong"}, "/generate", 401),
        ({"authorization": "Bearer"}, "/generate", 401),
        ({"authorization": "Basic secret"}, "/v1/models", 401),
        (KEY, "/v1/models", 200),
        ({"authorization": "bearer secret"}, "/generate", 200),
        ({}, "/health", 200),
        ({}, "/metrics", 200),
        ({}, "/health/../v1/models", 401),
    ],
)
def test_key_is_needed_but_by_what_watches_the_server(headers, path, expected):
    assert status(headers=headers, path=path, api_key="secret") == expected


def test_openai_package_sends_the_key(over_sockets):
    async def clients(port):
        url = f"http://127.0.0.1:{port}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="secret") as client:
            names = [model.id async for model in client.models.list()]
        async with openai.AsyncOpenAI(base_url=url, api_key="guess") as client:
            with pytest.raises(openai.AuthenticationError, match="key is missing or wrong"):
                await client.models.list()
        return names

    assert over_sockets(clients, address=Address(api_key="secret")) == ["tiny"]

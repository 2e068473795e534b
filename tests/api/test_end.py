"""The end of a server, by Ctrl-C."""

import asyncio
import threading

import httpx
import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from sim.api import http_server as web
from sim.api.answer import Asked


def test_answers_that_ctrl_c_cuts_off_leave_no_traceback(monkeypatch, capfd):
    """Their clients get an error, and one line on stderr says how many there were."""
    monkeypatch.setattr(web, "_GRACE_S", 0)
    ends, statuses = [], []

    async def wait_for_ever(_request):
        ends[0]()
        await asyncio.Event().wait()

    def ask():
        statuses.append(httpx.get(f"http://127.0.0.1:{port}/", timeout=60).status_code)

    app = Starlette(routes=[Route("/", wait_for_ever)])
    with web.listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        client = threading.Thread(target=ask)
        client.start()
        web.serve(app, listener, asyncio.Event().wait, ends.append)
        client.join()
    err = capfd.readouterr().err
    assert statuses == [500]
    assert "Traceback" not in err
    assert "Cancel 1 running task(s)" in err


@pytest.mark.parametrize("num_rounds", range(4))
def test_simulation_ends_though_a_request_comes_as_it_is_cancelled(server, num_rounds):
    """Python 3.11's `asyncio.wait_for` forgets a cancellation then, and the end never came."""

    async def run():
        running = asyncio.ensure_future(server.run())
        for _ in range(2):  # the second one comes while the server waits for the first one's step
            await asyncio.sleep(0)
            server.ask(Asked(np.arange(40), 20, ignore_eos=True))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        server.ask(Asked(np.arange(40), 20, ignore_eos=True))
        for _ in range(num_rounds):
            await asyncio.sleep(0)
        running.cancel()
        for _ in range(9):
            await asyncio.sleep(0)
        ended = running.done()
        running.cancel()
        return ended

    assert asyncio.run(run())

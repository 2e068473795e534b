"""The end of a server, by Ctrl-C."""

import asyncio
import threading

import httpx
from starlette.applications import Starlette
from starlette.routing import Route

from sim.api import http_server as web


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

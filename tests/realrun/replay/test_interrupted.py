"""Ctrl-C ends `realrun replay` with a server that hangs; what was measured is written."""

import asyncio
import os
import signal
import threading

import pytest
from aiohttp import web

from realrun.cli import main
from realrun.replay.run import Replayed
from realrun.replay.server_facts import AskedServer
from sim.workload.results.measured import read_measured_requests
from tests.support.serve import LINEAR_LATENCY

# One client: its second request is sent when the first one's answer is there.
SCENARIO = f"""\
name: little
{LINEAR_LATENCY}
workload:
  kind: clients
  clients: 1
  requests_per_client: 3
  think_s: {{kind: constant, value: 0}}
  prompt_tokens: {{kind: constant, value: 20}}
  output_tokens: {{kind: constant, value: 1}}
scheduler: {{page_size: 1, max_total_tokens: 4096, chunked_prefill_size: 512}}
"""


async def models(_request):
    return web.json_response({"data": [{"id": "m"}]})


def answers(num_answered, stop, number):
    """A handler that answers some requests; at the next one it sends a signal and hangs."""
    asked = []

    async def answer(request):
        asked.append(request)
        response = web.StreamResponse()
        await response.prepare(request)
        if len(asked) > num_answered:
            os.kill(os.getpid(), number)
            await stop.wait()
        await response.write(b'data: {"choices": [{"text": "x"}]}\n\ndata: [DONE]\n\n')
        return response

    return answer


@pytest.fixture(autouse=True, params=[signal.default_int_handler, signal.SIG_IGN])
def handler(request):
    """A shell lets the jobs that a script starts with `&` ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, request.param)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def hanging():
    """Returns a function that starts a server in a thread, and returns its address."""
    ends = []

    def start(num_answered, number=signal.SIGINT):
        ready, addresses = threading.Event(), []

        async def run():
            stop = asyncio.Event()
            app = web.Application()
            answer = answers(num_answered, stop, number)
            app.add_routes([web.get("/v1/models", models), web.post("/v1/completions", answer)])
            runner = web.AppRunner(app)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            addresses.append("http://{}:{}".format(*runner.addresses[0]))
            loop = asyncio.get_running_loop()
            ends.append((lambda: loop.call_soon_threadsafe(stop.set), thread))
            ready.set()
            await stop.wait()
            await runner.cleanup()

        thread = threading.Thread(target=lambda: asyncio.run(run()))
        thread.start()
        ready.wait()
        return addresses[0]

    yield start
    for end, thread in ends:
        end()
        thread.join()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_replay_writes_what_was_measured(tmp_path, hanging, capsys, number):
    path, out = tmp_path / "s.yaml", tmp_path / "mine"
    path.write_text(SCENARIO)
    assert main(["replay", str(path), "--url", hanging(1, number), "--out", str(out)]) == 0
    said = capsys.readouterr().err
    assert "interrupted: 2 requests were sent, and 1 of them were under way" in said
    first, second = read_measured_requests(out / "measured.jsonl.gz").requests
    assert first.finish_ns is not None
    assert second.finish_ns is None


def test_interrupted_replay_without_an_answer_writes_nothing(tmp_path, hanging, capsys):
    path, out = tmp_path / "s.yaml", tmp_path / "mine"
    path.write_text(SCENARIO)
    assert main(["replay", str(path), "--url", hanging(0), "--out", str(out)]) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("no request was answered: interrupted")
    assert not out.exists()


def test_replay_interrupted_before_its_first_request_writes_nothing(
    tmp_path, hanging, capsys, monkeypatch
):
    async def interrupted(workload, options):
        return Replayed(AskedServer("m"), [], [], None, 0)

    monkeypatch.setattr("realrun.replay.run.replay", interrupted)
    path, out = tmp_path / "s.yaml", tmp_path / "mine"
    path.write_text(SCENARIO)
    assert main(["replay", str(path), "--url", "http://nowhere", "--out", str(out)]) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("no request was answered: interrupted")
    assert not out.exists()

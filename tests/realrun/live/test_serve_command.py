"""`realrun serve` as a command: it ends politely, and refuses bad input in one line."""

import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

import httpx
import pytest

from realrun.cli import main
from realrun.live import answering
from realrun.live.serve_model import ServeOptions, serve_model
from realrun.runner.warm_runner import RunnerOptions
from realrun.server.assemble import assemble
from realrun.server.executor import TorchExecutor
from sim.core.errors import InputError


def test_interrupted_server_sends_answers_to_their_end_and_writes_its_files(
    scenario, replays, capsys
):
    out = scenario.parent / "out"

    def ask(port):
        body = {"prompt": "x", "max_tokens": 100, "ignore_eos": True, "stream": True}
        url = f"http://127.0.0.1:{port}/v1/completions"
        with httpx.stream("POST", url, json=body, timeout=60) as response:
            lines = response.iter_lines()
            try:
                next(lines)
            finally:
                os.kill(os.getpid(), signal.SIGINT)
            return [line for line in lines if line][-1]

    asked = []
    with ThreadPoolExecutor(1) as clients:
        options = ServeOptions(
            out=out, started=lambda port, _: asked.append(clients.submit(ask, port))
        )
        serve_model(scenario, overrides=(), runner=RunnerOptions(device="cpu"), options=options)
        assert asked[0].result() == "data: [DONE]"
    assert "1 requests served" in capsys.readouterr().out
    assert [line["output_tokens"] for line in replays(out).requests] == [100]


def test_server_to_which_nobody_came_writes_no_folder(scenario, capsys):
    out = scenario.parent / "out"
    options = ServeOptions(out=out, started=lambda _, stop: stop())
    serve_model(scenario, overrides=(), runner=RunnerOptions(device="cpu"), options=options)
    assert "no folder is written" in capsys.readouterr().err
    assert not out.exists()


def test_server_whose_device_fails_tells_its_clients_and_ends(scenario):
    """In one line, and with a status; nobody waits for an answer that will never come."""

    def ask(port):
        body = {"prompt": "x", "max_tokens": 9}
        return httpx.post(f"http://127.0.0.1:{port}/v1/completions", json=body, timeout=60)

    asked = []
    fails = patch.object(TorchExecutor, "take_result", side_effect=InputError("device lost"))
    with ThreadPoolExecutor(1) as clients, fails:
        options = ServeOptions(started=lambda port, _: asked.append(clients.submit(ask, port)))
        with pytest.raises(InputError, match="device lost"):
            serve_model(scenario, overrides=(), runner=RunnerOptions(device="cpu"), options=options)
    assert asked[0].result().status_code == 503


def test_times_of_tokens_are_not_kept(served, monkeypatch):
    """A server that runs for weeks would run out of memory with them; a log has its own."""
    made = []

    def noting(*given):
        made.append(assemble(*given))
        return made[-1]

    monkeypatch.setattr(answering, "assemble", noting)
    server = served()
    server.ask("x", max_tokens=9, ignore_eos=True)
    server.stop()
    gaps_ns, _, _ = made[0][0].clock.take()
    assert not len(gaps_ns.widened())


def test_bad_input_is_refused_in_one_line(scenario, tmp_path, capsys):
    served = scenario.rename(tmp_path / "scenario.yaml")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        cases = [
            (["--port", port], f"cannot listen on 127.0.0.1:{port}"),
            (["--out", str(served)], "is a file, expected a folder"),
            (["--out", str(tmp_path)], "scenario.yaml: is read by this command"),
            (["--set", "model=null"], "is required to run for real"),
            (["--set", "replicas=2"], "must be 1 in a real run"),
            (["--tokenizer", "nowhere", "--port", "0"], "tokenizer cannot be read"),
        ]
        for options, said in cases:
            assert main(["serve", str(served), "--device", "cpu", *options]) == 2
            stderr = capsys.readouterr().err
            assert said in stderr
            assert stderr.count("\n") == 1
            assert "Traceback" not in stderr

"""A tiny model behind real sockets."""

import json
import socket
import threading
from contextlib import redirect_stdout
from io import StringIO

import httpx
import pytest
import yaml

from calibrate.rebuild import rebuild
from calibrate.stages import replay_decisions
from realrun.live.serve_model import ServeOptions, serve_model
from realrun.runner.warm_runner import RunnerOptions
from sim.cli import main as simulate
from sim.runlog.run_log_file import read_run_log

MODEL = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 300,
    "max_position_embeddings": 512,
}
SCENARIO = """
name: live
model: m.json
latency: {kind: linear, step_s: 0.001, per_prefill_token_s: 0, per_decode_request_s: 0,
  per_context_token_s: 0}
workload: {kind: synthetic, num_requests: 1, arrivals: {kind: constant, rate_rps: 1},
  prompt_tokens: {kind: constant, value: 1}, output_tokens: {kind: constant, value: 1}}
"""
SCHEDULER = {
    "context_length": 512,
    "page_size": 8,
    "max_total_tokens": 2048,
    "max_running_requests": 8,
}


def write_scenario(folder, scheduler):
    """A scenario and its model."""
    (folder / "m.json").write_text(json.dumps(MODEL))
    path = folder / "s.yaml"
    extra = {"acceptance": {"rate": 0.5}} if "speculative_config" in scheduler else {}
    path.write_text(yaml.safe_dump(yaml.safe_load(SCENARIO) | {"scheduler": scheduler} | extra))
    return path


class Served:
    """A server in a thread.

    Attributes:
        model: the file of its model.
        port: where it listens.
        http: a client.
        out: its folder, with a log once it has been stopped.
    """

    def __init__(self, folder, scheduler, **options):
        self.out, self.model = folder / "out", folder / "m.json"
        path = write_scenario(folder, scheduler)
        started = threading.Event()

        def note(port, stop):
            self.port, self.stop_serving = port, stop
            started.set()

        how = ServeOptions(out=self.out, started=note, **options)
        runner = RunnerOptions(device="cpu")
        self.error = None

        def run():
            try:
                serve_model(path, overrides=(), runner=runner, options=how)
            except BaseException as error:
                self.error = error
            finally:
                started.set()

        self.thread = threading.Thread(target=run)
        self.thread.start()
        started.wait()
        if self.error is not None:
            raise self.error
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60)

    def ask(self, prompt, **body):
        """The reply to a completion."""
        reply = self.http.post("/v1/completions", json={"prompt": prompt, **body})
        return reply.json() if reply.status_code == 200 else reply

    def leave_early(self, body):
        """Go away after the first line of an answer."""
        with self.http.stream("POST", "/v1/completions", json={**body, "stream": True}) as stream:
            next(stream.iter_lines())

    def metric(self, name):
        """The value of one of SGLang's metrics."""
        lines = self.http.get("/metrics").text.splitlines()
        (line,) = [line for line in lines if line.startswith(f"sglang:{name}{{")]
        return float(line.split()[-1])

    def connect(self):
        """A bare connection."""
        return socket.create_connection(("127.0.0.1", self.port))

    def stop(self):
        """End the server, and return its folder."""
        self.http.close()
        self.stop_serving()
        self.thread.join()
        if self.error is not None:
            raise self.error
        return self.out


@pytest.fixture
def served(tmp_path):
    """Makes a server; it is stopped at the end."""
    made = []

    def make(scheduler=SCHEDULER, **options):
        made.append(Served(tmp_path, scheduler, **options))
        return made[-1]

    yield make
    for server in made:
        if server.thread.is_alive():
            server.stop()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A server for several tests; the log of all that it did is decided again at the end."""
    server = Served(tmp_path_factory.mktemp("shared"), SCHEDULER)
    yield server
    check_replays(server.stop())


def check_replays(out, *, rebuilds=True):
    """Decide all steps of a served run again; returns its log."""
    log = out / "run.jsonl.gz"
    said = StringIO()
    with redirect_stdout(said):
        assert simulate(["compare", str(log), str(out / "scenario.yaml")]) == 0
    assert "are decided the same again" in said.getvalue(), said.getvalue()
    if rebuilds:
        assert replay_decisions(rebuild(log)) is None
    return read_run_log(log)


@pytest.fixture
def scenario(tmp_path):
    """A scenario file."""
    return write_scenario(tmp_path, SCHEDULER)


@pytest.fixture
def replays():
    """The function `check_replays`."""
    return check_replays

"""Simulated servers, dumps of what their `/metrics` would have said, and a watch over them."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import NamedTuple

import pytest

from calibrate.watch.twin import WindowTwin
from calibrate.watch.watcher import Watched, Watcher
from sim.commands.running.simulate import simulate_built
from sim.des.run import RunOptions
from sim.families import known_metrics
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text
from sim.server_metrics.scrape import read_dump
from tests.support.metrics_dump import DumpWriter

SCHEDULERS = {
    "vllm": "{family: vllm, max_model_len: 2048, num_gpu_blocks_override: POOL}",
    "sglang": "{page_size: 16, context_length: 2048, max_total_tokens: POOL0}",
}
SCENARIO = """\
name: watched
seed: SEED
latency:
  kind: linear
  step_s: STEP
  per_prefill_token_s: PREFILL
  per_decode_request_s: 0.0002
  per_context_token_s: 0
workload:
  kind: synthetic
  num_requests: NUM
  arrivals: {kind: poisson, rate_rps: RATE}
  prompt_tokens: {kind: lognormal, mean: 300, cv: 0.7, max: 1500}
  output_tokens: {kind: lognormal, mean: 40, cv: 0.7, max: 200}
scheduler: SCHEDULER
"""


class Server(NamedTuple):
    """A simulated server and its traffic."""

    family: str = "vllm"
    seed: int = 1
    rate_rps: float = 2.0
    step_ms: float = 20.0
    prefill_us: float = 100.0
    pool_pages: int = 2_000

    def scenario(self, seconds=100.0):
        values = {
            "SEED": self.seed,
            "STEP": self.step_ms / 1e3,
            "PREFILL": self.prefill_us / 1e6,
            "NUM": round(1.2 * self.rate_rps * seconds) + 20,
            "RATE": self.rate_rps,
            "SCHEDULER": SCHEDULERS[self.family].replace("POOL", str(self.pool_pages)),
        }
        text = SCENARIO
        for name, value in values.items():
            text = text.replace(name, str(value))
        return text

    def built(self, seconds=100.0):
        return build(load_scenario_text(self.scenario(seconds), name="watched"))


def write_dump(path, *parts, every_s=4.0):
    """Write what servers say that follow each other under one address, each for some seconds."""
    writer = DumpWriter(parts[0][0].family, every_s)
    for server, seconds in parts:
        log = simulate_built(server.built(seconds), RunOptions(timed_gaps=True))
        writer.add(log, seconds)
    path.write_bytes(writer.content())
    return path


@contextmanager
def serving(texts):
    """A server whose `/metrics` are the next text each time; None: it has a fault."""
    left = iter(texts)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            text = next(left) if self.path == "/metrics" else None
            self.send_response(500 if text is None else 200)
            self.end_headers()
            self.wfile.write((text or "").encode())

        def log_message(self, *_):
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/metrics"
        server.shutdown()
        thread.join()


class Seen(NamedTuple):
    """What a watch has said: its windows, and each note with its time in seconds."""

    windows: list[Watched]
    notes: list[tuple[float, str]]

    @property
    def drifts(self):
        """When drifts began, and what was said."""
        return [(at_s, note) for at_s, note in self.notes if note.startswith("DRIFT")]


def watch_dump(path, twin, *, window_s=20.0, num_learned=6, num_draws=2, seed=1):
    """Watch a dump beside the twin of a built scenario."""
    watcher = Watcher(
        WindowTwin(twin, num_draws=num_draws, seed=seed),
        twin.scheduler.family,
        window_s=window_s,
        num_learned=num_learned,
    )
    scrapes = read_dump(path, known_metrics())
    windows = [seen for scrape in scrapes if (seen := watcher.take(scrape)) is not None]
    first_us = windows[0].window.first.at_us
    notes = [
        ((seen.window.last.at_us - first_us) / 1e6, note) for seen in windows for note in seen.notes
    ]
    return Seen(windows, notes)


@pytest.fixture
def watched(tmp_path):
    """Writes a dump of servers and watches it beside a twin."""

    def watched(*parts, twin, **options):
        return watch_dump(write_dump(tmp_path / "metrics.txt", *parts), twin.built(), **options)

    return watched

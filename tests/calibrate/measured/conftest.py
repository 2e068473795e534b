"""Scenarios, and measured runs of them: only the requests' time stamps."""

from pathlib import Path

import numpy as np
import pytest

from sim.runlog import NOT_YET_NS, RequestColumns
from sim.runlog.run_log_file import MeasuredRun, load_run_log, write_measured
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text
from tests.support.measured_runs import measured_run

MS = 1_000_000
SCENARIO = """\
name: study
seed: 3
latency:
  kind: linear
  step_s: 0.004
  per_prefill_token_s: 2.0e-5
  per_decode_request_s: 1.0e-4
  per_context_token_s: 1.0e-7
workload:
  kind: synthetic
  num_requests: 80
  arrivals: {kind: poisson, rate_rps: 40}
  prompt_tokens: {kind: uniform, min: 20, max: 600}
  output_tokens: {kind: uniform, min: 1, max: 150}
scheduler:
  schedule_policy: fcfs
  page_size: 16
  max_total_tokens: 40000
  context_length: 2048
  chunked_prefill_size: 512
  max_running_requests: 16
  disable_overlap_schedule: true
"""


@pytest.fixture(scope="session")
def load():
    """Loads the scenario with these `KEY.PATH=VALUE` options."""
    return lambda *options: load_scenario_text(SCENARIO, options)


@pytest.fixture(scope="session")
def serve(load):
    """Serves the scenario on a device with its latency; returns the stamps of its requests."""

    def run(*options, disturbance=None, latency=None):
        loaded = load(*options)
        latency = build(loaded).latencies[0] if latency is None else latency
        requests = load_run_log(measured_run(loaded, latency, disturbance)).requests
        return MeasuredRun(
            requests.rid,
            requests.arrival_ns,
            requests.scheduled_ns,
            requests.first_token_ns,
            requests.finish_ns,
            requests.prompt_tokens,
            requests.output_tokens,
        )

    return run


@pytest.fixture
def scenario_file(folder):
    """The scenario on disk."""
    path = Path("study.yaml")
    path.write_text(SCENARIO, encoding="utf-8")
    return path


@pytest.fixture
def measured_file(folder, serve):
    """Serves the scenario and writes what was measured; returns the path."""

    def to_disk(*options, name="measured.jsonl.gz", disturbance=None, change=None):
        run = serve(*options, disturbance=disturbance)
        write_measured(run if change is None else change(run), Path(name))
        return Path(name)

    return to_disk


@pytest.fixture(scope="session")
def stamps():
    """Makes a measured run of `(rid, arrival, first token, finish, output tokens)` rows in ms."""

    def make(*rows):
        rid, *columns = zip(*rows, strict=True)
        arrival, first, finish = (
            np.array([NOT_YET_NS if t is None else round(t * MS) for t in column], dtype=np.int64)
            for column in columns[:3]
        )
        tokens = np.array(columns[3], dtype=np.int64)
        return MeasuredRun(list(rid), arrival, arrival, first, finish, tokens * 0 + 10, tokens)

    return make


@pytest.fixture(scope="session")
def simulated(stamps):
    """Makes the requests of a simulation from such rows, with a status each."""

    def make(*rows, status=None):
        run = stamps(*rows)
        none = np.zeros(len(rows), dtype=np.int64)
        words = status or ["finished"] * len(rows)
        return RequestColumns(
            rid=run.rid,
            tenant=[""] * len(rows),
            status=words,
            arrival_ns=run.arrival_ns,
            scheduled_ns=run.scheduled_ns,
            first_token_ns=run.first_token_ns,
            finish_ns=run.finish_ns,
            prompt_tokens=run.prompt_tokens,
            cached_tokens=none,
            host_cached_tokens=none,
            verify_steps=none,
            drafted_tokens=none,
            accepted_tokens=none,
            output_tokens=run.output_tokens,
            priority=none,
            retractions=none,
            preemptions=none,
            aged=none,
            replica=none,
            warm_up=none,
        )

    return make

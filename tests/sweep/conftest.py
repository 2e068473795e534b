"""A scenario that runs in milliseconds, and an executor without workers."""

import pytest

from sim.scenario.load import load_scenario_text
from sim.workers.executor import TraceCache, run_task
from tests.support.serve import LINEAR_LATENCY

BASE = (
    f"name: study\n{LINEAR_LATENCY}"
    """\
workload:
  kind: synthetic
  num_requests: 3
  arrivals: {kind: poisson, rate_rps: 10}
  prompt_tokens: {kind: constant, value: 100}
  output_tokens: {kind: constant, value: 4}
scheduler: {max_total_tokens: 4096}
"""
)


@pytest.fixture(scope="session")
def base_text():
    return BASE


class Inline:
    """Runs tasks in this process; counts how often each is run."""

    def __init__(self):
        self.keys = []

    def run(self, tasks, runner):
        read_trace = TraceCache()
        for task in tasks:
            self.keys.append(task.key)
            yield run_task(task, runner, read_trace)


@pytest.fixture
def inline():
    return Inline()


@pytest.fixture
def with_sweep():
    """The base scenario with this sweep section, lines as they are."""

    def load(section, *overrides):
        lines = "".join(f"  {line}\n" for line in section.splitlines())
        return load_scenario_text(f"{BASE}sweep:\n{lines}", overrides, name="study.yaml")

    return load

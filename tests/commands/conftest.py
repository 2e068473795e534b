"""A small scenario, a small trace, and the command line run in this process."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from sim.cli import main

SCENARIO = """\
name: study
seed: 3
latency:
  kind: linear
  step_s: 0.005
  per_prefill_token_s: 4e-5
  per_decode_request_s: 5e-5
  per_context_token_s: 2e-8
workload:
  kind: synthetic
  num_requests: 40
  arrivals: {kind: poisson, rate_rps: 20}
  prompt_tokens: {kind: uniform, min: 20, max: 300}
  output_tokens: {kind: uniform, min: 1, max: 30}
  prefixes: {groups: 3, tokens: {kind: constant, value: 160}, share_probability: 0.5}
scheduler:
  schedule_policy: lpm
  page_size: 16
  max_total_tokens: 4096
  context_length: 2048
  chunked_prefill_size: 256
slo: {ttft_ms: 500, tpot_ms: 50}
"""
SYNTHETIC = SCENARIO[SCENARIO.index("  kind: synthetic") : SCENARIO.index("scheduler:")]
TRACE = """\
  kind: trace
  format: mooncake
  path: trace.jsonl
"""
ROWS = [
    {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]},
    {"timestamp": 40, "input_length": 700, "output_length": 9, "hash_ids": [1, 3]},
    {"timestamp": 90, "input_length": 100, "output_length": 4, "hash_ids": [4]},
]


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Every test runs in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def scenario(folder):
    """study.yaml: 40 synthetic requests."""
    Path("study.yaml").write_text(SCENARIO, encoding="utf-8")
    return "study.yaml"


@pytest.fixture
def scenario_with(scenario):
    """Write study.yaml with one more section."""
    text = Path(scenario).read_text(encoding="utf-8")

    def write(section):
        Path(scenario).write_text(text + section, encoding="utf-8")
        return scenario

    return write


@pytest.fixture
def trace_scenario(folder):
    """study.yaml on trace.jsonl, both written; returns the trace's lines."""
    Path("study.yaml").write_text(SCENARIO.replace(SYNTHETIC, TRACE), encoding="utf-8")
    lines = [json.dumps(row) for row in ROWS]
    Path("trace.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return lines


@pytest.fixture
def simulate(capsys):
    """Run `simulate` with these arguments in this process."""

    def run(*arguments):
        capsys.readouterr()
        code = main(list(map(str, arguments)))
        return Ended(code, *capsys.readouterr())

    return run


@pytest.fixture
def listing(folder):
    """What lies in the folder now: every path, and every file's bytes."""

    def look():
        return {
            path.relative_to(folder): path.read_bytes() if path.is_file() else None
            for path in sorted(folder.rglob("*"))
        }

    return look


ALL_OUTPUTS = (
    *("--out", "out", "--decisions", "decisions.jsonl"),
    *("--requests", "requests.csv", "--perfetto", "perfetto.json"),
)


@pytest.fixture
def refused(simulate, listing):
    """Run with every kind of output asked for; it must fail cleanly. Returns the line."""

    def run(*arguments):
        before = listing()
        ended = simulate("run", *arguments, *ALL_OUTPUTS)
        return _clean_refusal(ended, before, listing())

    return run


@pytest.fixture
def refused_bare(simulate, listing):
    """Run exactly these arguments; it must fail cleanly. Returns the line."""

    def run(*arguments):
        before = listing()
        return _clean_refusal(simulate(*arguments), before, listing())

    return run


def _clean_refusal(ended, before, after):
    """Exit code 2, one line on stderr, nothing on stdout, no file touched."""
    assert ended.code == 2
    assert ended.out == ""
    assert after == before
    assert ended.err.startswith("simulate: ")
    assert ended.err.endswith("\n")
    assert len(ended.err.splitlines()) == 1
    return ended.err.removeprefix("simulate: ").removesuffix("\n")

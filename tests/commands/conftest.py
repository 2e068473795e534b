"""A small scenario, a small trace, and command lines run in this process and in new ones."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from sim.cli import main
from sim.workers.executor import TraceCache, run_task
from tests.support.serve import LINEAR_LATENCY

SCENARIO = (
    f"name: study\nseed: 3\n{LINEAR_LATENCY}"
    """\
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
)
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
    """Every test runs in its own empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def no_progress(monkeypatch):
    """Nothing that is said depends on how long a test takes."""
    monkeypatch.setattr("sim.report.progress._LINE_EVERY_S", 1e9)
    monkeypatch.setattr("sim.report.progress._SHORT_S", 1e9)


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
def python(folder):
    """Run Python with these arguments in a process of its own, which hashes as this one does not.

    This process hashes by chance, unless PYTHONHASHSEED says how.
    """
    hash_seed = "1" if os.environ.get("PYTHONHASHSEED") == "0" else "0"

    def run(*arguments, cwd=folder, stdout=subprocess.PIPE, **environment):
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=cwd,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, **environment},
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    return run


class InlinePool:
    """Runs points in this process, one after the other; stands in for worker processes.

    Attributes:
        num_run: points run so far, by all pools.
        num_before_ctrl_c: Ctrl-C comes after this many; None: never.
    """

    num_run = 0
    num_before_ctrl_c = None

    def __init__(self, jobs, *, forks=True):
        self.jobs = jobs

    def __enter__(self):
        return self

    def __exit__(self, *ended):
        pass

    def run(self, tasks, runner):
        read_trace = TraceCache()
        for task in tasks:
            if InlinePool.num_run == self.num_before_ctrl_c:
                raise KeyboardInterrupt
            InlinePool.num_run += 1
            yield run_task(task, runner, read_trace)


@pytest.fixture
def inline(monkeypatch):
    """Sweeps, searches and runs start no worker processes."""
    for module in ("sim.workers.choose", "sim.commands.running.sweeps"):
        monkeypatch.setattr(f"{module}.ProcessPool", InlinePool)
    monkeypatch.setattr(InlinePool, "num_run", 0)
    monkeypatch.setattr(InlinePool, "num_before_ctrl_c", None)
    return InlinePool


# A command line that kills itself when it has stored this many points.
KILLED = """\
import os, signal, sys
from sim.cli import main
from sim.sweep.store import PointStore

num_left = int(sys.argv.pop(1))
write = PointStore.write

def write_and_die(store, *arguments):
    global num_left
    write(store, *arguments)
    num_left -= 1
    if num_left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

PointStore.write = write_and_die
main()
"""


@pytest.fixture
def killed_after(python):
    """Run `simulate` in a process that is killed when it has stored this many points."""

    def run(num_points, *arguments):
        assert python("-c", KILLED, num_points, *arguments).code == -signal.SIGKILL

    return run


# A command line on a disk that is full when a file has this many bytes.
FULL = """\
import resource, sys
from sim.cli import main

most = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
sys.exit(main())
"""


@pytest.fixture
def on_full_disk(python):
    """Run `simulate` in a process whose files cannot have more than this many bytes."""
    return lambda num_bytes, *arguments: python("-c", FULL, num_bytes, *arguments)


@pytest.fixture
def points_in():
    """Every point stored in a folder, and what would change if it were written again."""

    def look(folder):
        stats = {path.name: path.stat() for path in Path(folder, "points").glob("*.json")}
        return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in stats.items()}

    return look


@pytest.fixture
def listing(folder):
    """Every path in the folder, and every file's bytes, but for what Python itself keeps."""

    def look():
        return {
            path.relative_to(folder): path.read_bytes() if path.is_file() else None
            for path in sorted(folder.rglob("*"))
            if "__pycache__" not in path.parts
        }

    return look


ALL_OUTPUTS = (
    *("--out", "out", "--decisions", "decisions.jsonl"),
    *("--requests", "requests.csv", "--perfetto", "perfetto.json"),
)


@pytest.fixture
def refused(simulate, listing):
    """Run with options for every kind of output. It must fail cleanly. Returns the line."""

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
    """Exit code 2, one line on stderr, nothing on stdout, no file touched.

    A scenario with a class of the user has another line before it, which names its file.
    """
    assert ended.code == 2
    assert ended.out == ""
    assert after == before
    err = re.sub(r"\Aservetwin: runs the code of .*\n", "", ended.err)
    assert err.startswith("simulate: ")
    assert err.endswith("\n")
    assert len(err.splitlines()) == 1
    return err.removeprefix("simulate: ").removesuffix("\n")

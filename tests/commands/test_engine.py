"""An installed engine decides: what is said to it, and what is said when something is wrong."""

import json
import sys
from pathlib import Path

import pytest

from sim.installed.environment import engine_hash
from sim.scenario.load import load_scenario
from tests.conftest import REPOSITORY

SCENARIO = """\
name: asked
latency: {kind: linear, step_s: 0.01, per_prefill_token_s: 0, per_decode_request_s: 0,
  per_context_token_s: 0}
workload: {kind: synthetic, num_requests: 6, arrivals: {kind: constant, rate_rps: 100},
  prompt_tokens: {kind: constant, value: 20}, output_tokens: {kind: constant, value: 4}}
scheduler: {family: vllm, engine: env, num_gpu_blocks_override: 100}
"""
# Stands where an engine's Python would: a scheduler that computes whole prompts, two at a time.
PYTHON = """\
import os, sys, types
from collections import deque
sys.path.insert(0, {root!r})
sys.argv[1:] = sys.argv[3:]

class Server:
    def __init__(self, settings):
        {opens}
        self.waiting, self.running, self.flying = deque(), {{}}, deque()

    def add(self, now_ns, requests):
        self.waiting.extend(requests)
        return self.state()

    def state(self):
        return {{
            "free_tokens": 1584, "evictable_tokens": 0, "waiting": len(self.waiting),
            "running": len(self.running), "full": False, "ratio": 0.0, "chunked": None,
            "aborted": [],
        }}

    def decide(self, now_ns):
        rows, preempted = [], []
        for rid, request in self.running.items():
            if request["sent"] < request["max_tokens"]:
                rows.append([rid, 20 + request["sent"] - 1, 1, True, 0])
                request["sent"] += 1
        while self.waiting and len(self.running) < 2:
            request = self.waiting.popleft()
            rid = request["rid"]
            self.running[rid] = request | {{"got": 0, "sent": 1}}
            rows.append([rid, 0, 20, True, 0])
        {decides}
        if rows:
            self.flying.append(rows)
        again = bool(preempted)
        more = {{"rows": rows, "preempted": preempted, "retracted": [], "again": again}}
        return self.state() | more

    def result(self, now_ns, sampled, drafts):
        given, ended = list(sampled), []
        for rid in given:
            self.running[rid]["got"] += len(sampled[rid])
            if self.running[rid]["got"] == 4:
                del self.running[rid]
                ended.append(rid)
        {results}
        return self.state() | {{"given": given, "ended": ended}}

module = types.ModuleType("server")
module.Server, module.VERSION, module.NEEDS_PROCESS = Server, "9.9", {apart}
sys.modules["sim.installed.inside.vllm.server"] = module
from sim.installed.inside.main import main
main()
"""
FAULTS = {
    "refuses": ({"opens": "raise ValueError('no such\\n policy')"},
                "vllm 9.9 in env: ValueError: no such policy (engine.py:8)"),
    "raises": ({"decides": "raise KeyError('r1')"}, "vllm 9.9 in env: KeyError: 'r1' (engine.py:"),
    "raises at a result": ({"results": "sys.exit('bye')"}, "vllm 9.9 in env: SystemExit: bye"),
    "dies": ({"decides": "print('out of luck', file=sys.stderr, flush=True); os._exit(3)"},
             "vllm 9.9 in env: its process ended with code 3: out of luck"),
    "dies apart": ({"apart": True, "decides": "os._exit(3)"},
                   "ChildProcessError: the server's process has ended"),
    "never admits": ({"decides": "rows.clear()"},
                     "1 requests wait and 0 run, but none gets a token"),
    "preempts for ever": (
        {"decides": "self.turn = not getattr(self, 'turn', False)\n"
                    "        rows[:], preempted[:] = rows[:1] * 0, []\n"
                    "        if self.turn:\n"
                    "            rows.append(['0', 0, 20, False, 0])\n"
                    "        else:\n"
                    "            preempted.append(['0', '0'])"},
        "none gets a token"),
    "two tokens": ({"decides": "rows = [[r, c, n + (n == 1), s, 0] for r, c, n, s, _ in rows]"},
                   "2 tokens and 0 drafts for 0, which decodes"),
    "loses a token": ({"results": "given.clear()"},
                      "0 loses a token in flight, which is not simulated"),
    "ends too early": ({"results": "ended = list(given)"},
                       "it ends 0, against the request's own limits"),
    "never ends": ({"results": "ended.clear()"}, "it does not end 0, against the request's own"),
}  # fmt: skip


@pytest.fixture
def engine(folder, monkeypatch):
    """Write a scenario, and the environment of an engine with these changes."""
    running = {}
    monkeypatch.setattr("sim.installed.process._running", running)

    def write(*, opens="pass", decides="pass", results="pass", apart=False):
        changes = {"opens": opens, "decides": decides, "results": results, "apart": apart}
        text = PYTHON.format(root=str(REPOSITORY), **changes)
        Path("engine.py").write_text(text, encoding="utf-8")
        Path("study.yaml").write_text(SCENARIO, encoding="utf-8")
        python = folder / "env/bin/python"
        python.parent.mkdir(parents=True)
        lines = ["#!/bin/sh", f'exec {sys.executable} {folder / "engine.py"} "$@"', ""]
        python.write_text("\n".join(lines), encoding="utf-8")
        python.chmod(0o755)

    yield write
    for process in running.values():
        process.end()


@pytest.mark.parametrize("apart", [False, True], ids=["one process", "a process each"])
@pytest.mark.parametrize("overlaps", ["true", "false"])
def test_engine_decides_every_step_of_two_servers(simulate, engine, overlaps, apart):
    """Two requests at a time on each server, whatever the engine prints."""
    engine(opens="print('starting')", decides="print('deciding')", apart=apart)
    ended = simulate(
        "run", "study.yaml", "--check", "--set", f"scheduler.async_scheduling={overlaps}",
        "--set", "replicas=2", "--decisions", "steps.jsonl",
    )  # fmt: skip
    assert ended.code == 0
    assert ended.err.count("\n") == 1
    assert "env/bin/python, which the scenario names" in ended.err
    log = Path("steps.jsonl").read_text(encoding="utf-8")
    assert log.count('"kind":"req"') == log.count('"status":"finished"') == 6


def test_engine_hears_what_of_its_drafts_was_accepted(simulate, engine):
    """The prompt's step gives the first token, and the next one, with two drafts, the other three.

    Each result says, too, that two drafts follow.
    """
    engine(
        decides="rows = [[r, c, n + 2 * (n == 1), s, 2 * (n == 1)] for r, c, n, s, _ in rows]",
        results="assert set(drafts.values()) == {2}",
    )
    ended = simulate(
        "run", "study.yaml", "--check", "--set", "scheduler.async_scheduling=false",
        "--set", "scheduler.speculative_config={method: ngram, num_speculative_tokens: 2}",
        "--set", "acceptance={by_position: [1.0, 1.0]}", "--decisions", "steps.jsonl",
    )  # fmt: skip
    assert (ended.code, ended.err.count("\n")) == (0, 1)
    lines = [json.loads(line) for line in Path("steps.jsonl").read_text("utf-8").splitlines()]
    assert [each for line in lines for each in line.get("drafts", [])] == [2] * 6


@pytest.mark.parametrize("fault", FAULTS)
def test_engine_that_is_wrong_is_one_line(simulate, engine, fault):
    """On stderr, after the line that says whose code runs, with the scenario's line and key."""
    changes, message = FAULTS[fault]
    engine(**changes)
    ended = simulate("run", "study.yaml")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 2)
    assert "simulate: study.yaml:6: scheduler.engine: " in ended.err
    assert message in ended.err


def test_engine_that_is_not_installed_is_one_line(simulate, engine, folder):
    """No Python at all, and a Python without the engine."""
    engine()
    python = folder / "env/bin/python"
    python.unlink()
    ended = simulate("run", "study.yaml")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert "study.yaml:6: scheduler.engine: env is no Python environment: it has no bin/python" in (
        ended.err
    )
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    ended = simulate("run", "study.yaml")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 2)
    assert "scheduler.engine: env: ModuleNotFoundError: No module named 'vllm'" in ended.err
    for number, (lines, message) in enumerate({
        "#!/bin/sh\nread question\necho Welcome\nread more": "it answers Welcome",
        "#!/no/such/interpreter": "bin/python cannot be run: No such file or directory",
        "#!/bin/sh\nexit 7": "its process ended with code 7",
    }.items()):  # fmt: skip
        other = folder / f"other{number}/bin/python"
        other.parent.mkdir(parents=True)
        other.write_text(f"{lines}\n", encoding="utf-8")
        other.chmod(0o755)
        ended = simulate("run", "study.yaml", "--set", f"scheduler.engine=other{number}")
        assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 2)
        assert message in ended.err


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        (["model=meta-llama/Llama-3.1-8B", "scheduler.kv_offloading_size=1"],
         "kv_offloading_size"),
        (["pools={a: {role: prefill}, b: {role: decode}}",
          "transfer={bandwidth_gb_s: 10, bytes_per_token: 9}"],
         "role prefill"),
    ],
)  # fmt: skip
def test_engine_is_not_asked_about_other_servers(simulate, engine, changes, what):
    engine()
    options = [text for change in changes for text in ("--set", change)]
    ended = simulate("validate", "study.yaml", *options)
    assert (ended.code, ended.out) == (2, "")
    assert f"an installed engine is not asked about servers with {what}" in ended.err


def test_engine_is_code_which_may_be_refused(simulate, engine):
    engine()
    ended = simulate("run", "study.yaml", "--no-user-code")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert "scheduler.engine: the code of " in ended.err
    assert "env/bin/python is not run, because of --no-user-code" in ended.err


def test_engine_that_changes_makes_another_scenario(engine, folder):
    """Results of a sweep are not those of the engine before."""
    engine()
    source = folder / "env/lib/python3/site-packages/vllm/v1/core/sched.py"
    source.parent.mkdir(parents=True)
    hashes = set()
    for line in ("budget = 1\n", "budget = 2\n"):
        source.write_text(line, encoding="utf-8")
        engine_hash.cache_clear()
        hashes.add(load_scenario("study.yaml").content_hash)
    assert len(hashes) == 2


@pytest.mark.parametrize(
    ("package", "message"),
    [
        ("trtllm==1.0", "trtllm==1.0: must be sglang==VERSION, sglang@FOLDER or vllm==VERSION, "),
        ("vllm", "vllm: must be sglang==VERSION, "),
        ("vllm==0.33.0", "env: exists already"),
    ],
)
def test_engine_command_refuses_what_it_cannot_install(simulate, engine, package, message):
    engine()
    ended = simulate("engine", package, "env")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert ended.err.startswith(f"simulate: {message}")

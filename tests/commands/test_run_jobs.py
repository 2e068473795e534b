"""`simulate run --jobs`: several workers write what one process writes, or stderr says why not."""

import pickle
import re
from pathlib import Path

import pytest

from sim.report.figures import render

FOUR = ("--set", "replicas=4", "--set", "workload.num_requests=90")
BUSY = ("--set", "workload.arrivals.rate_rps=90")
CLIENTS = (
    "workload={kind: clients, clients: 3, requests_per_client: 2, think_s: {kind: constant,"
    " value: 0}, prompt_tokens: {kind: constant, value: 9}, output_tokens: {kind: constant,"
    " value: 9}}"
)
TAKES_TURNS = """\
class InTurn:
    {line}

    def __init__(self):
        self.number = 0

    def choose(self, spec, replicas):
        self.number += 1
        {read}
        return self.number % len(replicas)
"""


@pytest.fixture(autouse=True)
def drawn_once(monkeypatch):
    """A picture with the same marks is not drawn again: drawing takes most of the time here."""
    drawn, save = {}, render.save_picture

    def save_once(picture, path):
        marks = pickle.dumps(picture)
        if marks not in drawn:
            save(picture, path)
            drawn[marks] = path.read_bytes()
        path.write_bytes(drawn[marks])

    monkeypatch.setattr(render, "save_picture", save_once)


def all_that_is_written(simulate, scenario, *options):
    """The summary, what stderr says, and every file; but for the time that it took."""
    files = {"--decisions": "d.jsonl", "--requests": "r.csv", "--perfetto": "p.json"}
    written = [part for pair in files.items() for part in pair]
    ended = simulate("run", scenario, *FOUR, *BUSY, *options, *written, "--out", "out")
    assert ended.code == 0, ended.err
    paths = [*files.values(), *sorted(Path("out").rglob("*.*"))]
    out = re.sub(r"(Simulated|wall).*", "", ended.out)
    return out, ended.err, {str(path): Path(path).read_bytes() for path in paths}


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("router=random", "host={request_s: 0.001, front_end_s: 0.002}"),
        (
            "router={kind: session-sticky, assignment: random}",
            "warmup={duration_s: 0.2}",
            "cooldown={requests: 9}",
        ),
        ("scheduler={family: vllm, num_gpu_blocks_override: 200, max_model_len: 2000}",),
    ],
    ids=["round-robin", "random", "session-sticky", "vllm"],
)
def test_run_jobs_write_the_same_bytes(simulate, scenario, inline, options):
    """One worker with all replicas, three with one or two each, or this process."""
    sets = [part for option in options for part in ("--set", option)]
    alone = all_that_is_written(simulate, scenario, *sets)
    for jobs in (1, 3, 9):
        assert all_that_is_written(simulate, scenario, *sets, "--jobs", jobs) == alone
    assert inline.num_run == 3 + 4


def test_run_jobs_processes_write_the_same_bytes(simulate, scenario):
    """Real ones."""
    alone = all_that_is_written(simulate, scenario, "--no-fast-forward")
    assert all_that_is_written(simulate, scenario, "--no-fast-forward", "--jobs", 2) == alone


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("router=least-loaded", "router least-loaded looks at the loads of all replicas"),
        ("router=session-sticky", "router session-sticky looks at the loads of all replicas"),
        ("replicas=1", "it has one replica"),
        (
            CLIENTS,
            "its clients wait for answers, and answers depend on all replicas",
        ),
    ],
)
def test_run_jobs_with_dependent_replicas_runs_here_and_says_why(
    simulate, scenario, inline, option, reason
):
    """The result is that of a run without the option."""
    options = ("run", scenario, "--set", "replicas=4", "--set", option, "--format", "json")
    ended = simulate(*options, "--jobs", 2)
    assert ended.code == 0
    assert ended.err == f"servetwin: study.yaml: runs in one process: {reason}\n"
    assert without_time(ended.out) == without_time(simulate(*options).out)
    assert inline.num_run == 0


def test_run_jobs_with_a_shared_store_runs_here(simulate, scenario, inline):
    store = "store={shared: true, read_tokens_per_s: 1000000, write_tokens_per_s: 1000000}"
    host = "scheduler.host_cache={load_tokens_per_s: 1000000, storage: {}}"
    ended = simulate("run", scenario, *FOUR, "--set", store, "--set", host, "--jobs", 2)
    assert ended.err == "servetwin: study.yaml: runs in one process: its replicas share a store\n"
    assert inline.num_run == 0


def without_time(text):
    return re.sub(r'"wall_seconds": .*', "", text)


def test_run_jobs_take_a_users_router_that_looks_at_no_loads(simulate, scenario, inline):
    """If it says so; if it reads a load then, the run is refused with and without the option."""
    load = "replicas[0].num_unfinished"
    for name, line, read, num_run in (
        ("my_turns", "", load, 0), ("my_blind", "looks_at_loads = False", "", 2)
    ):  # fmt: skip
        Path(f"{name}.py").write_text(TAKES_TURNS.format(line=line, read=read), encoding="utf-8")
        router = ("--set", f"router={name}:InTurn")
        alone = all_that_is_written(simulate, scenario, *router)
        assert all_that_is_written(simulate, scenario, *router, "--jobs", 2)[::2] == alone[::2]
        assert inline.num_run == num_run
    lying = TAKES_TURNS.format(line="looks_at_loads = False", read=load)
    Path("my_liar.py").write_text(lying, encoding="utf-8")
    for jobs in (1, 2):
        ended = simulate("run", scenario, *FOUR, "--set", "router=my_liar:InTurn", "--jobs", jobs)
        assert ended.code == 2
        assert "reads num_unfinished, but says looks_at_loads = False" in ended.err.splitlines()[-1]


def test_run_jobs_bad_input_is_the_error_of_one_process(simulate, scenario, inline):
    """Where several replicas meet an error, the first one in simulated time."""
    times = "class Slow:\n    def step_ns(self, step):\n        1 / (step.context_tokens < 900)\n"
    Path("my_slow.py").write_text(times + "        return 10**7, 0\n", encoding="utf-8")
    options = ("run", scenario, *FOUR, "--set", "latency=my_slow:Slow")
    ended = [simulate(*options, "--jobs", jobs) for jobs in (1, 4)]
    assert ended[0].code == 2
    assert ended[0].err.splitlines()[-1] == ended[1].err.splitlines()[-1]
    assert ended[1][:2] == ended[0][:2]


def test_run_jobs_worker_that_dies_ends_the_run(simulate, scenario):
    """With one line, and exit code 1: the input is not to blame."""
    times = "import os, signal\nfrom multiprocessing import parent_process\n\n\nclass Dies:\n"
    times += "    def step_ns(self, step):\n        if parent_process() is not None:\n"
    times += "            os.kill(os.getpid(), signal.SIGKILL)\n        return 10**7, 0\n"
    Path("my_death.py").write_text(times, encoding="utf-8")
    ended = simulate("run", scenario, *FOUR, "--set", "latency=my_death:Dies", "--jobs", 2)
    assert ended.code == 1
    assert ended.err.splitlines()[-1] == (
        "simulate: the worker process ended: SIGKILL, perhaps for lack of memory"
    )
    assert ended.out == ""

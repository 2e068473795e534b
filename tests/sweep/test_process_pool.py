"""Worker processes: their number changes no result, and one that dies loses only its point."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import sim.workers.process_pool
from sim.commands.running.points import run_point
from sim.sweep.plan import plan_sweep
from sim.workers.executor import PointWork, Task, TaskStatus, TraceCache
from sim.workers.process_pool import THREAD_SETTINGS, ProcessPool

REPOSITORY = Path(__file__).parents[2]


def describe_worker(loaded, read_trace):
    """A runner that returns its process id, and dies at seed 2."""
    seed = loaded.scenario.seed
    if seed == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if seed == 3:
        os.kill(os.getpid(), signal.SIGINT)
    return {
        "seed": seed,
        "pid": os.getpid(),
        "reader": id(read_trace),
        "threads": {name: os.environ.get(name) for name in THREAD_SETTINGS},
    }


@pytest.fixture
def tasks(with_sweep):
    """One task for each seed. Its key is the seed."""

    def make(*seeds):
        plan = plan_sweep(with_sweep(f"seeds: {list(seeds)}"))
        return [Task(str(p.settings["seed"]), plan.vary(p.settings)) for p in plan.points]

    return make


def test_process_pool_survives_a_worker_that_dies(tasks):
    """Killed, say for lack of memory: that point is a fault, all others are done. Ctrl-C in the
    terminal reaches workers too; they leave it to the sweep.
    """
    outcomes = {o.key: o for o in ProcessPool(1).run(tasks(1, 2, 3, 4), describe_worker)}
    assert outcomes["2"].status is TaskStatus.FAULT
    assert outcomes["2"].message == (
        "the worker process ended: SIGKILL, perhaps for lack of memory"
    )
    assert [outcomes[key].result["seed"] for key in "134"] == [1, 3, 4]
    assert outcomes["3"].result["pid"] == outcomes["4"].result["pid"]
    assert outcomes["3"].result["pid"] != outcomes["1"].result["pid"]


def test_first_worker_of_a_program_leaves_an_interrupt_to_the_program(tmp_path):
    """With the first one, Python starts a process of its own, and takes interrupts again."""
    code = """
import os, signal
from sim.workers.executor import Task
from sim.workers.process_pool import ProcessPool
def interrupt(work, read_trace):
    os.kill(os.getpid(), signal.SIGINT)
    return work
def run():
    [outcome] = ProcessPool(1).run([Task("a", 7)], interrupt)
    print(outcome.status, outcome.result)
"""
    (tmp_path / "interrupted.py").write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", "import interrupted; interrupted.run()"], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "done 7\n", "")


def test_process_pool_workers_live_as_long_as_the_sweep(tasks, monkeypatch):
    """One process and one trace cache a worker, one thread each, and none left afterwards."""
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    outcomes = list(ProcessPool(2).run(tasks(4, 5, 6, 7, 8), describe_worker))
    assert sorted(outcome.key for outcome in outcomes) == list("45678")
    workers = {(outcome.result["pid"], outcome.result["reader"]) for outcome in outcomes}
    assert len({pid for pid, _ in workers}) == len(workers) <= 2
    assert all(set(outcome.result["threads"].values()) == {"1"} for outcome in outcomes)
    assert os.environ["OMP_NUM_THREADS"] == "7"
    for pid, _ in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_process_pool_as_a_context_keeps_its_workers_between_runs(tasks):
    """With what they have read; one that dies is replaced, and none is left in the end."""
    with ProcessPool(1) as pool:
        first = list(pool.run(tasks(4, 5), describe_worker))
        [again] = pool.run(tasks(6), describe_worker)
        assert {outcome.result["pid"] for outcome in first} == {again.result["pid"]}
        [died] = pool.run(tasks(2), describe_worker)
        assert died.status is TaskStatus.FAULT
        [last] = pool.run(tasks(7), describe_worker)
        assert last.result["pid"] != again.result["pid"]
        os.kill(last.result["pid"], 0)
    with pytest.raises(ProcessLookupError):
        os.kill(last.result["pid"], 0)


_LOADED: list[str] = []


def what_is_loaded(work, read_trace):
    """A runner that returns what its process has loaded."""
    return list(_LOADED)


def test_workers_begin_with_what_is_loaded_and_give_the_same_if_not(with_sweep, monkeypatch):
    """What this process computed before changes no byte of a result."""
    monkeypatch.setattr(sys.modules[__name__], "_LOADED", ["tables"])
    work = [PointWork(with_sweep("seeds: [1]", f"seed={seed}")) for seed in range(2)]
    here = [run_point(each, TraceCache()) for each in work]
    for forks in (True, False):
        monkeypatch.setattr(sim.workers.process_pool, "_may_fork", lambda forks=forks: forks)
        assert _results([1], what_is_loaded) == [["tables"] if forks else []]
        assert _results(work, run_point) == here


def _results(work, runner):
    tasks = [Task(str(place), each) for place, each in enumerate(work)]
    outcomes = {one.key: one.result for one in ProcessPool(1).run(tasks, runner)}
    return [outcomes[task.key] for task in tasks]


def test_workers_start_anew_where_another_thread_runs():
    """It may hold a lock at that moment, which nobody in a forked process would let go."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        assert not sim.workers.process_pool._may_fork()
    finally:
        end.set()
        thread.join()


def test_process_pool_closed_early_leaves_no_worker(tasks):
    """Whoever stops listening stops the workers, also in the middle of a point."""
    arriving = ProcessPool(1).run(tasks(*range(10, 40)), describe_worker)
    first = next(arriving)
    arriving.close()
    with pytest.raises(ProcessLookupError):
        os.kill(first.result["pid"], 0)

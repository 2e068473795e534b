"""Which points a sweep runs, and which it takes from the store."""

import grimp
import pytest

from sim.core.errors import InputError, InvariantError
from sim.scenario.load import load_scenario_text
from sim.sweep.plan import plan_sweep
from sim.sweep.store import Identities, PointStore, StoredPoints
from sim.workers.executor import TaskOutcome, TaskStatus, code_version, deciding_sources


def seed_of(work, read_trace):
    """A runner that returns the seed, and fails for two seeds."""
    seed = work.loaded.scenario.seed
    if seed == 2:
        raise InputError("study.yaml:3:\nseed: is 2")
    if seed == 3:
        raise InvariantError("page 3 freed twice")
    return {"seed_was": seed}


@pytest.fixture
def sweep(tmp_path, inline, with_sweep):
    """Sweep over seeds; returns the outcomes in the order of the seeds."""

    def run(*seeds, runner=seed_of, code="1+code", fresh=False):
        plan = plan_sweep(with_sweep(f"seeds: {list(seeds)}"))
        points = StoredPoints(PointStore(tmp_path, code), inline, runner, code=code, fresh=fresh)
        points.read(plan)
        [outcomes] = points.run(plan, [plan.points], lambda *_: None)
        return list(outcomes)

    return run


def test_sweep_run_again_runs_nothing(sweep, inline):
    """All outcomes come from the store, and are equal."""
    first = sweep(1, 4, 5)
    assert [outcome.result for outcome in first] == [{"seed_was": seed} for seed in (1, 4, 5)]
    assert len(inline.keys) == 3
    assert sweep(1, 4, 5) == first
    assert len(inline.keys) == 3


def test_sweep_extended_runs_the_new_points_only(sweep, inline):
    """Points belong to the store, not to the sweep that ran them."""
    sweep(1, 4)
    assert [outcome.result["seed_was"] for outcome in sweep(5, 4, 1)] == [5, 4, 1]
    assert len(inline.keys) == 3


def test_sweep_bad_points_do_not_stop_the_others(sweep):
    """Bad input and faults of ours are told apart, each on one line."""
    done, bad, fault, last = sweep(1, 2, 3, 4)
    assert (done.status, last.status) == (TaskStatus.DONE, TaskStatus.DONE)
    assert (bad.status, bad.message, bad.trace) == (
        TaskStatus.BAD_INPUT,
        "study.yaml:3: seed: is 2",
        None,
    )
    assert (fault.status, fault.message) == (
        TaskStatus.FAULT,
        "InvariantError: page 3 freed twice",
    )
    assert "in seed_of" in fault.trace


def test_sweep_run_again_tries_failed_points_again(sweep, inline):
    """Whatever was wrong may be mended; what succeeded is not repeated."""
    sweep(1, 2, 3)
    mended = sweep(1, 2, 3, runner=lambda loaded, read_trace: {"fine": 1})
    assert [outcome.result for outcome in mended] == [{"seed_was": 1}, {"fine": 1}, {"fine": 1}]
    assert len(inline.keys) == 5


def test_sweep_fresh_runs_everything(sweep, inline):
    """On request nothing is taken from the store."""
    sweep(1, 4)
    sweep(1, 4, fresh=True)
    assert len(inline.keys) == 4


def test_sweep_of_other_code_is_run_again(sweep, inline):
    """A change of the simulator may change every result."""
    sweep(1, code="1+older")
    sweep(1)
    assert len(set(inline.keys)) == 2


def test_sweep_equal_points_are_run_once(tmp_path, inline, with_sweep):
    """Draws may be equal; each still has its row."""
    section = "random: {num_points: 5, draw: {replicas: {kind: int, min: 1, max: 2}}}"
    plan = plan_sweep(with_sweep(section))
    points = StoredPoints(PointStore(tmp_path, "1+code"), inline, seed_of, code="1+code")
    [outcomes] = points.run(plan, [plan.points], lambda *_: None)
    assert len(outcomes) == 5
    assert len(inline.keys) == len({outcome.key for outcome in outcomes}) <= 2


def test_sweep_stopped_half_way_has_stored_what_it_finished(tmp_path, with_sweep):
    """An outcome is on disk before the next one is waited for."""
    plan = plan_sweep(with_sweep("seeds: [1, 4, 5]"))
    store = PointStore(tmp_path, "1+code")
    closed = []

    class Interrupted:
        def run(self, tasks, runner):
            try:
                for task in list(tasks)[:2]:
                    yield TaskOutcome(task.key, TaskStatus.DONE, {})
                raise KeyboardInterrupt
            finally:
                closed.append(True)

    points = StoredPoints(store, Interrupted(), seed_of, code="1+code")
    with pytest.raises(KeyboardInterrupt):
        points.run(plan, [plan.points], lambda *_: None)
    assert closed == [True]
    keys = [points.key(plan, point) for point in plan.points]
    assert list(store.read(keys).outcomes) == sorted(keys[:2])


def test_point_key_depends_on_the_content_of_named_files(tmp_path, base_text):
    """A trace that is replaced under the same name is another point; a copy elsewhere is not."""
    recorded = base_text.replace("kind: linear\n", "kind: recorded\n  path: log.jsonl\n")
    text = "".join(line for line in recorded.splitlines(True) if "_s: " not in line)

    def key(folder, content):
        folder.mkdir(exist_ok=True)
        if content is not None:
            (folder / "log.jsonl").write_text(content)
        return Identities("1+code").key(load_scenario_text(text, base_dir=folder))

    keys = [key(tmp_path / "a", content) for content in (None, "x", "y", "x")]
    assert len(set(keys)) == 3
    assert keys[1] == keys[3] == key(tmp_path / "b", "x")


def test_code_version_names_the_release_and_the_sources():
    """Equal every time; a hash of what lies on the disk behind the version."""
    version, _, digest = code_version().partition("+")
    assert version.count(".") == 2
    assert len(digest) == 16
    code_version.cache_clear()
    assert code_version() == f"{version}+{digest}"


def test_code_version_covers_what_a_run_imports_and_no_page():
    """Results stay stored when a text of a page, a table or a command changes."""
    covered = {name for name, _ in deciding_sources()}
    graph = grimp.build_graph("sim", cache_dir=None)
    point = "sim.commands.running.points"
    for module in {point, *graph.find_upstream_modules(point)} - {"sim"}:
        path = module.removeprefix("sim.").replace(".", "/")
        assert {f"{path}.py", f"{path}/__init__.py"} & covered, module
    assert {"installed/inside/main.py", "latency/models.json"} <= covered
    beside = {"contest/tables.py", "contest/page.py", "commands/contest.py", "report/page.py"}
    assert not covered & beside

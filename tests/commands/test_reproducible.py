"""INV-6 through the command line: the same bytes in every process, whatever the hash seed."""

import json
from pathlib import Path

import pytest

OUTPUTS = (
    *("--out", "out", "--decisions", "d.jsonl.gz", "--requests", "r.parquet"),
    *("--perfetto", "p.json.gz"),
)
VLLM = "scheduler={family: vllm, num_gpu_blocks_override: 130, max_num_seqs: 40}"


def written(place, ended):
    """What a run prints, without the time that it took, and the files that it writes."""
    assert (ended.code, ended.err) == (0, "")
    files = {p.relative_to(place): p.read_bytes() for p in place.rglob("*") if p.is_file()}
    return without_wall_seconds(ended.out), files


def without_wall_seconds(text):
    """The text without the line that says how long the run took."""
    assert json.loads(text)["wall_seconds"] > 0
    return [line for line in text.splitlines() if '"wall_seconds"' not in line]


@pytest.mark.parametrize("scheduler", [None, VLLM], ids=["sglang", "vllm"])
def test_run_in_two_processes_writes_the_same_bytes(
    folder, simulate, python, scenario, monkeypatch, scheduler
):
    """Summaries, tables, logs, traces and pictures agree under two hash seeds."""
    first, second = folder / "first", folder / "second"
    for place in (first, second):
        place.mkdir()
    outputs = OUTPUTS if scheduler is None else ("--decisions", "d.jsonl.gz", "--set", scheduler)
    command = ("run", folder / scenario, "--format", "json", *outputs)
    monkeypatch.chdir(first)
    first_text, first_files = written(first, simulate(*command))
    second_text, second_files = written(second, python("-m", "sim", *command, cwd=second))
    assert first_text == second_text
    assert set(first_files) == set(second_files)
    assert len(first_files) == (10 if scheduler is None else 1)
    different = [str(name) for name, data in first_files.items() if second_files[name] != data]
    assert not different


@pytest.mark.parametrize("policy", ["random", "dfs-weight"])
def test_run_twice_in_one_process_writes_the_same_log(simulate, scenario, policy):
    """Nothing is left over from a run that could change the next one."""
    logs = []
    for name in ("a.jsonl", "b.jsonl"):
        options = ("--set", f"scheduler.schedule_policy={policy}", "--decisions", name)
        assert simulate("run", scenario, *options).code == 0
        logs.append(Path(name).read_bytes())
    assert logs[0] == logs[1]


def test_run_with_another_seed_writes_another_log(simulate, scenario):
    """The comparison above can fail."""
    simulate("run", scenario, "--decisions", "a.jsonl")
    simulate("run", scenario, "--set", "seed=4", "--decisions", "b.jsonl")
    assert Path("a.jsonl").read_bytes() != Path("b.jsonl").read_bytes()

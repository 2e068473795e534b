"""Files of others run no code, fill no memory and choose no words; inputs are not overwritten."""

import gzip
import json
import os
import pickle
import threading
from pathlib import Path

import pytest

from sim.commands.output import check_folder
from sim.core.errors import MAX_ERROR, InputError, error_line
from sim.core.files import inputs_kept, lock_folder
from tests.support import result_files

REQUEST = result_files.ServedRequest("r", 0, 1, 10**7, 10**8, (1,) * 20, (2,) * 5, 5)
MOONCAKE = {"input_length": 40, "output_length": 1}


@pytest.fixture
def evil(folder):
    """A module that leaves a trace when it runs; returns what names a class in it."""
    (folder / "evilmod.py").write_text("open('trap', 'w').close()\n", encoding="utf-8")
    yield "evilmod:Policy"
    assert not Path("trap").exists()


def test_results_do_not_choose_code_that_runs(simulate, evil):
    """Neither a benchmark's server_info nor the settings in a dump."""
    info = {"schedule_policy": evil, "page_size": 16}
    Path("bench.json").write_text(result_files.sglang_bench([REQUEST], server_info=info))
    dump = pickle.loads(result_files.sglang_dump([]))  # noqa: S301 - our own
    dump = {"server_args": info, "requests": dump["requests"]}
    Path("empty.pkl").write_bytes(pickle.dumps(dump))
    assert simulate("import", "bench.json", "--out", "out").code == 0
    assert "not simulated: schedule_policy evilmod:Policy" in Path("out/scenario.yaml").read_text()
    assert simulate("run", "out/scenario.yaml").code == 0
    assert simulate("import", "empty.pkl", "--out", "empty").code == 2


@pytest.mark.parametrize(
    ("option", "target"),
    [("--decisions", "trace.jsonl"), ("--perfetto", "trace.jsonl"), ("--requests", "trace.csv")],
)
def test_a_trace_is_not_overwritten_by_the_run_that_reads_it(
    simulate, scenario_of_trace, option, target
):
    """Under no name that it has."""
    path = Path("trace.jsonl")
    if target != "trace.jsonl":
        Path(target).symlink_to(path)
    content = path.read_bytes()
    ended = simulate("run", scenario_of_trace, option, target)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == f"simulate: {target}: is read by this command: write to another place\n"
    assert path.read_bytes() == content


@pytest.mark.parametrize("name", ["fit.json", "server.json", "tokens.jsonl.gz", "over-time.csv"])
def test_a_folder_whose_results_are_an_input_is_refused(folder, name):
    """Those of calibrate and of realrun replay."""
    path = folder / name
    path.write_text("x", encoding="utf-8")
    with inputs_kept(), pytest.raises(InputError, match="is read by this command"):
        check_folder(folder, path)


@pytest.fixture
def scenario_of_trace(scenario):
    """study.yaml on a small trace beside it."""
    rows = [{"timestamp": i, "hash_ids": [i], **MOONCAKE} for i in range(5)]
    Path("trace.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    trace = "{kind: trace, format: mooncake, path: trace.jsonl}"
    text = Path(scenario).read_text(encoding="utf-8")
    begin, end = text.index("workload:"), text.index("scheduler:")
    Path("of-trace.yaml").write_text(f"{text[:begin]}workload: {trace}\n{text[end:]}")
    return "of-trace.yaml"


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_a_scenario_is_not_overwritten_in_the_folder_of_results(simulate, scenario, command):
    name = {"run": "scenario.json", "sweep": "results.json"}[command]
    Path("out").mkdir()
    text = Path(scenario).read_text(encoding="utf-8")
    Path("out", name).write_text(f"{text}sweep: {{seeds: [1]}}\n", encoding="utf-8")
    ended = simulate(command, f"out/{name}", "--out", "out")
    assert ended.err.endswith(f"out/{name}: is read by this command: write to another place\n")
    assert [path.name for path in Path("out").iterdir()] == [name]


def test_a_trace_in_a_pipe_is_read_to_its_end(simulate, scenario_of_trace):
    """The first bytes tell whether it is compressed; none of them gets lost."""
    rows = [{"timestamp": i, "hash_ids": [i], **MOONCAKE} for i in range(4_000)]
    content = "\n".join(map(json.dumps, rows)).encode()
    os.mkfifo("pipe")
    writer = threading.Thread(target=Path("pipe").write_bytes, args=(content,))
    writer.start()
    ended = simulate("workload", scenario_of_trace, "--set", "workload.path=pipe")
    writer.join()
    assert "4,000" in ended.out


def test_a_small_file_that_unpacks_to_a_gigabyte_is_refused(refused, scenario_of_trace):
    Path("trace.jsonl").write_bytes(gzip.compress(b"\0" * (1 << 26)))
    assert refused(scenario_of_trace).endswith("gzip data unpack to over 250 times their size")


def test_two_commands_do_not_write_to_one_folder(refused_bare, scenario, folder):
    text = Path(scenario).read_text(encoding="utf-8")
    Path("grid.yaml").write_text(f"{text}sweep: {{seeds: [1]}}\n", encoding="utf-8")
    Path("out").mkdir()
    with inputs_kept():
        lock_folder(folder / "out")
        # Within the same process, another descriptor is another holder.
        line = refused_bare("sweep", "grid.yaml", "--out", "out")
    assert line == "out: another command writes its results there"


@pytest.mark.parametrize("text", ["x" * 10_000, "\x1b[31m" * 400, "a\n" * 500, "\udcff" * 300])
def test_an_error_line_is_short_and_printable(text):
    line = error_line(f"file.yaml:7: key: {text} (at the end)")
    assert len(line) <= MAX_ERROR
    assert line.isprintable()
    assert line.startswith("file.yaml:7: key: ")
    assert line.endswith("(at the end)")


def test_a_run_beyond_the_clock_is_refused(refused, scenario):
    """Fast-forward or not: no time wraps around."""
    options = ("--set", "latency.step_s=60", "--set", "latency.per_context_token_s=60",
               "--set", "workload.output_tokens={kind: constant, value: 1700}",
               "--set", "workload.num_requests=400", "--set", "scheduler.max_total_tokens=100000",
               "--set", "workload.prompt_tokens={kind: constant, value: 300}")  # fmt: skip
    line = refused(scenario, *options)
    assert line.endswith(
        "the run takes more than 146 simulated years, beyond which there are no times"
    )

"""The suite: stages run in order, within a budget, are recorded and resumed."""

import gzip
import json
import signal
import tarfile
from pathlib import Path

import pytest

from realrun.cli import main
from realrun.clock import Budget
from realrun.server.serve_runs import variant_runs
from realrun.suite.bundle import add_member, is_whole, member_sizes
from realrun.suite.process import StageOutcome, arguments_of, run_process
from realrun.suite.run_suite import run_suite
from realrun.suite.stages import GPU_STAGES, TINY_STAGES, Stage
from sim.core.errors import InputError
from sim.report.progress import Progress
from sim.runlog.run_log_file import read_run_log
from sim.scenario.load import load_scenario

SCENARIO = Path(__file__).parents[2] / "scenarios" / "calibration" / "tiny.yaml"
STAGES = (
    Stage("check", 1, ("check",)),
    Stage("profile", 2, ("profile",), "profile.jsonl.gz"),
    Stage("runs", 3, ("runs",), "runs.tar"),
)


class Machine:
    """Fake processes and clock: what each stage does, and how long it takes."""

    def __init__(self, folder, **codes):
        self.folder = folder
        self.codes = codes
        self.seconds = dict.fromkeys(("check", "profile", "runs"), 10.0)
        self.now_s = 0.0
        self.limits_s = {}
        self.said = []

    def run(self, command, limit_s):
        name = command[0]
        self.limits_s[name] = limit_s
        self.now_s += self.seconds[name]
        if "--out" in command:
            content = gzip.compress(b"{}\n")
            if name == "runs":
                add_member(self.folder / "runs.tar", f"runs/{self.now_s}.jsonl.gz", content)
            else:
                (self.folder / "profile.jsonl.gz").write_bytes(content)
        return StageOutcome(self.codes.get(name, 0), False, self.seconds[name], [f"{name} it is"])

    def call(self, budget_s):
        budget = Budget(budget_s, began_s=self.now_s, clock=lambda: self.now_s)
        return run_suite(
            STAGES, self.folder, device="cpu", budget=budget, say=self.said.append, run=self.run
        )


def statuses(records):
    return {record.stage: record.status for record in records}


def test_suite_shares_what_is_left_by_weight(tmp_path):
    """Time that a stage did not need goes to those after it."""
    machine = Machine(tmp_path)
    machine.call(300.0)
    assert machine.limits_s == {
        "check": pytest.approx(300 / 6),
        "profile": pytest.approx(290 * 2 / 5),
        "runs": pytest.approx(280),
    }


def test_suite_second_call_goes_on(tmp_path):
    """What is done is not done again; what failed or has more to do is."""
    machine = Machine(tmp_path, check=1, runs=3)
    assert statuses(machine.call(300.0)) == {
        "check": "failed",
        "profile": "done",
        "runs": "unfinished",
    }
    machine.limits_s.clear()
    machine.codes = {}
    records = machine.call(300.0)
    assert set(machine.limits_s) == {"check", "runs"}
    assert set(statuses(records).values()) == {"done"}
    assert [record.seconds for record in records] == [20.0, 10.0, 20.0]
    machine.limits_s.clear()
    machine.call(300.0)
    assert not machine.limits_s


def test_suite_does_damaged_files_again(tmp_path):
    """A stage counts as done only while its file can be read to its end."""
    machine = Machine(tmp_path)
    machine.call(300.0)
    path = tmp_path / "profile.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-6])
    machine.limits_s.clear()
    machine.call(300.0)
    assert set(machine.limits_s) == {"profile"}


def test_suite_failing_stage_is_recorded_and_the_others_go_on(tmp_path):
    """suite.json holds the exit code and the last lines; every stage has its line."""
    Machine(tmp_path, profile=1).call(300.0)
    lines = json.loads((tmp_path / "suite.json").read_text())["stages"]
    assert [line["status"] for line in lines] == ["done", "failed", "done"]
    assert lines[1]["code"] == 1
    assert lines[1]["printed"] == ["profile it is"]
    assert lines[2]["file"] == "runs.tar"
    assert lines[2]["file_bytes"] == (tmp_path / "runs.tar").stat().st_size


def test_suite_spent_budget_begins_nothing_more(tmp_path):
    """A stage that cannot do more than load is left to the next call."""
    machine = Machine(tmp_path)
    machine.seconds["check"] = 88.0
    assert statuses(machine.call(100.0)) == {
        "check": "done",
        "profile": "not begun",
        "runs": "not begun",
    }
    assert "the same command continues" in machine.said[-1]


def test_suite_stage_without_a_limit_costs_nothing_of_the_budget(tmp_path):
    """To compile kernels may take any time, in each call that has something to do."""
    machine = Machine(tmp_path)
    machine.seconds["kernels"] = 500.0
    stages = (Stage("kernels", 0, ("kernels",), is_limited=False), *STAGES)
    for called in (["kernels", "check", "profile", "runs"], []):
        machine.limits_s.clear()
        budget = Budget(100.0, began_s=machine.now_s, clock=lambda: machine.now_s)
        say = machine.said.append
        run_suite(stages, tmp_path, device="cpu", budget=budget, say=say, run=machine.run)
        assert list(machine.limits_s) == called
    assert machine.said[0] == "kernels: begins, for as long as it takes"


def test_suite_limits_never_exceed_what_is_left(tmp_path):
    """However long stages take, all of them end within the budget."""
    machine = Machine(tmp_path)
    machine.seconds = dict.fromkeys(machine.seconds, 30.0)
    machine.call(100.0)
    assert machine.limits_s["profile"] <= 70.0
    assert machine.limits_s["runs"] <= 40.0


def test_suite_records_of_another_kind_are_refused(tmp_path):
    """One line, not a traceback."""
    (tmp_path / "suite.json").write_text("[]")
    with pytest.raises(InputError, match=r"suite\.json: not a record file of the suite"):
        Machine(tmp_path).call(100.0)


def test_process_that_ends_is_heard():
    """Its results, and its complaints only where it failed."""
    speak = "import sys; print('result'); print('complaint', file=sys.stderr); sys.exit({})"
    good = run_process(exec, speak.format(0), 60.0)
    bad = run_process(exec, speak.format(1), 60.0)
    assert (good.code, good.timed_out, good.printed) == (0, False, ["result"])
    assert (bad.code, bad.timed_out, bad.printed) == (1, False, ["result", "complaint"])


def test_process_at_its_limit_is_interrupted(monkeypatch):
    """As by Ctrl-C, so that a command can keep what it has."""
    # A shell may have started the tests with SIGINT ignored, and children would inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    # Even on a busy machine, the process has time to end.
    monkeypatch.setattr("realrun.suite.process._KILL_AFTER_S", 60.0)
    try:
        code = "import signal as s; s.signal(s.SIGINT, s.default_int_handler); s.pause()"
        outcome = run_process(exec, code, 63.0)
    finally:
        signal.signal(signal.SIGINT, before)
    assert outcome.timed_out
    assert outcome.code in {-signal.SIGINT, 130, 1}


def test_process_command_leaves_time_to_end(tmp_path):
    """A stage with a file is told its budget, less than its limit."""
    command = arguments_of(STAGES[1], tmp_path, "cuda", 100.0)
    assert command[0] == "profile"
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--out"] == str(tmp_path / "profile.jsonl.gz")
    assert 0 < float(options["--budget-s"]) < 100.0
    assert "--budget-s" not in arguments_of(STAGES[0], tmp_path, "cuda", 100.0)


def test_stages_write_few_files():
    """With the records at most eight, no two stages to one file."""
    files = [stage.file for stage in GPU_STAGES if stage.file is not None]
    assert len(files) == len(set(files)) <= 7
    assert len({stage.name for stage in GPU_STAGES}) == len(GPU_STAGES)


def scenario_of(stage):
    arguments = stage.arguments
    values = {key: [] for key in ("--set", "--variant")}
    for key, value in zip(arguments[2::2], arguments[3::2], strict=True):
        values.setdefault(key, []).append(value)
    return arguments[1], values["--variant"], values["--set"]


@pytest.mark.parametrize(
    "stage",
    [s for s in (*GPU_STAGES, *TINY_STAGES) if s.arguments[0] == "runs"],
    ids=lambda s: s.name,
)
def test_stages_of_runs_are_valid_scenarios_of_one_load(stage):
    """Several settings, each twice, under names of their own, all serving the same traffic."""
    path, variants, overrides = scenario_of(stage)
    runs = variant_runs(path, variants, overrides=overrides, repeats=2)
    number = 2 if "pack" in stage.name else 6
    assert [run.repeat for run in runs] == [1] * number + [2] * number
    assert len({run.loaded.content_hash for run in runs}) == number
    assert len({run.loaded.scenario.workload.model_dump_json() for run in runs}) == 1
    assert all(run.loaded.scenario.name.endswith(run.name) for run in runs)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen2.5-0.5b", "gpt2", "tiny"])
def test_calibration_scenarios_fit_their_contexts(name):
    """No request is longer than the server takes."""
    path = SCENARIO.with_name(f"{name}.yaml")
    scenario = load_scenario(path).scenario
    load = scenario.workload
    longest = load.prompt_tokens.max + load.prefixes.tokens.max + load.output_tokens.max
    assert longest <= scenario.scheduler.context_length


def test_bundle_grows_by_whole_members(tmp_path):
    """What was put in comes out, in order, and the same members make the same bytes."""
    bundles = [tmp_path / "a.tar", tmp_path / "b.tar"]
    assert member_sizes(bundles[0]) == {}
    for bundle in bundles:
        add_member(bundle, "x/1.jsonl.gz", gzip.compress(b"one\n", mtime=0))
        add_member(bundle, "x/2.jsonl.gz", gzip.compress(b"two\n", mtime=0))
    assert list(member_sizes(bundles[0])) == ["x/1.jsonl.gz", "x/2.jsonl.gz"]
    assert is_whole(bundles[0])
    assert bundles[0].read_bytes() == bundles[1].read_bytes()
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["a.tar", "b.tar"]


@pytest.mark.parametrize("num_bytes", [0, 100, 600])
def test_bundle_cut_short_is_noticed(tmp_path, num_bytes):
    """Wherever it was cut off."""
    bundle = tmp_path / "a.tar"
    add_member(bundle, "x/1.jsonl.gz", gzip.compress(b"one\n" * 1000) * 20)
    bundle.write_bytes(bundle.read_bytes()[:num_bytes])
    assert not is_whole(bundle)


@pytest.mark.parametrize(
    ("variants", "message"),
    [
        (["Upper x=1"], "must begin with a name"),
        (["  "], "must begin with a name"),
        (["a", "a seed=1"], "another variant has this name"),
        (["a sheduler.page_size=1"], "unknown key"),
    ],
)
def test_variants_that_are_none_are_refused(variants, message):
    """One line that names the option."""
    with pytest.raises(InputError, match=message):
        variant_runs(SCENARIO, variants, overrides=[], repeats=1)


@pytest.fixture
def runs_arguments(config_paths, tmp_path):
    """`realrun runs` of two variants, four requests each, on the tiny llama."""
    sets = [
        f"model={config_paths['llama']}",
        "workload.num_requests=4",
        "scheduler.context_length=400",
        "host=vllm-async",
    ]
    return [
        "runs", str(SCENARIO), "--out", str(tmp_path / "logs.tar"),
        *(part for change in sets for part in ("--set", change)),
        "--set", "workload.arrivals.rate_rps=100", "--device", "cpu",
        "--variant", "fcfs", "--variant", "lpm scheduler.schedule_policy=lpm",
    ]  # fmt: skip


def test_runs_serve_every_variant_and_go_on(runs_arguments, tmp_path, capsys):
    """One repeat, then two: the second call serves what is missing, and exit code 0 says whole."""
    assert main([*runs_arguments, "--repeats", "1"]) == 0
    assert main([*runs_arguments, "--repeats", "2"]) == 0
    printed = capsys.readouterr()
    assert "4 of 4 runs are in" in printed.out
    assert printed.err.count("--set host=vllm-async: is not used by a real run") == 2
    with tarfile.open(tmp_path / "logs.tar") as tar:
        tar.extractall(tmp_path, filter="data")
    names = ["fcfs-1", "lpm-1", "fcfs-2", "lpm-2"]
    assert list(member_sizes(tmp_path / "logs.tar")) == [f"logs/{n}.jsonl.gz" for n in names]
    logs = [read_run_log(tmp_path / "logs" / f"{name}.jsonl.gz") for name in names]
    assert [log.meta["scheduler"]["schedule_policy"] for log in logs] == ["fcfs", "lpm"] * 2
    assert logs[0].meta["scenario_hash"] == logs[2].meta["scenario_hash"]
    assert all(len(log.requests) == 4 for log in logs)


def test_runs_interrupted_keep_those_that_are_finished(
    runs_arguments, tmp_path, monkeypatch, capsys
):
    """Ctrl-C in the second run: 130, the first one's log is whole, and the next call goes on."""
    command = [*runs_arguments, "--repeats", "1"]
    update, ended = Progress.update, []

    def interrupt_the_second(progress, num_over, now_ns):
        if num_over < sum(ended[-1:]):
            raise KeyboardInterrupt
        ended.append(num_over)
        update(progress, num_over, now_ns)

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "update", interrupt_the_second)
        assert main(command) == 130
    assert list(member_sizes(tmp_path / "logs.tar")) == ["logs/fcfs-1.jsonl.gz"]
    capsys.readouterr()
    assert main(command) == 0
    assert "fcfs 1" not in capsys.readouterr().out
    assert list(member_sizes(tmp_path / "logs.tar")) == [
        "logs/fcfs-1.jsonl.gz",
        "logs/lpm-1.jsonl.gz",
    ]


def test_runs_without_time_say_there_is_more(runs_arguments, tmp_path):
    """Exit code 3, and no bundle yet."""
    assert main([*runs_arguments, "--budget-s", "0"]) == 3
    assert not (tmp_path / "logs.tar").exists()


def test_runs_keep_the_bundle_small(runs_arguments, tmp_path, capsys):
    """The next log is not even measured if it would take the bundle beyond its limit."""
    assert main([*runs_arguments, "--max-mib", "0.001"]) == 2
    assert list(member_sizes(tmp_path / "logs.tar")) == ["logs/fcfs-1.jsonl.gz"]
    assert "one more log could make it larger than" in capsys.readouterr().err


def test_runs_of_another_runner_are_refused(runs_arguments, capsys):
    """Variants share the warm runner: its pool is what it is."""
    variant = ["--variant", "small scheduler.max_total_tokens=1024"]
    assert main([*runs_arguments, *variant, "--repeats", "1"]) == 2
    printed = capsys.readouterr()
    assert "max_total_tokens=1024: is 1024, but the warm runner was made for 2048" in printed.err
    assert not printed.out


def test_suite_without_a_gpu_is_refused(tmp_path, capsys, monkeypatch):
    """One clear line that says how to try it anyway."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["suite", "--out", str(tmp_path / "out"), "--budget-s", "100"]) == 2
    assert "--device cpu --model tiny" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_suite_without_time_begins_nothing(tmp_path, capsys):
    """The table names every stage."""
    arguments = ["--budget-s", "0", "--device", "cpu", "--model", "tiny"]
    assert main(["suite", "--out", str(tmp_path / "out"), *arguments]) == 0
    printed = capsys.readouterr().out
    assert all(stage.name in printed for stage in TINY_STAGES)
    assert printed.count("not begun") == len(TINY_STAGES)

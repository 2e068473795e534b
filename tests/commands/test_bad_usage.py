"""Bad options, arguments and output paths are refused in one line, before anything runs."""

from pathlib import Path

import pytest

import sim.commands.running.simulate
from sim.cli import main

# (arguments, the line on stderr)
USAGE = [
    (["run"], "FILE is missing; without it, --model, --hardware, --traffic are needed"),
    (["validate"], "Missing argument 'FILE' (see simulate validate --help)"),
    (["rum"], "No such command 'rum'. Did you mean 'run'? (see simulate --help)"),
    (["run", "study.yaml", "--bogus"],
     "No such option: --bogus (Possible options: --jobs, --out) (see simulate run --help)"),
    (["run", "study.yaml", "--out"],
     "Option '--out' requires an argument (see simulate run --help)"),
    (["run", "study.yaml", "--format", "xml"],
     ("Invalid value for '--format': 'xml' is not one of 'table', 'json', 'vllm-bench'"
      " (see simulate run --help)")),
    (["run", "study.yaml", "second.yaml"],
     "Got unexpected extra argument(s) (second.yaml) (see simulate run --help)"),
]  # fmt: skip

# (option and path, the line on stderr)
PATHS = [
    (["--out", "no/out"], "no/out: its folder no does not exist"),
    (["--out", "file"], "file: is a file, expected a folder"),
    (["--decisions", "no/d.jsonl"], "no/d.jsonl: its folder no does not exist"),
    (["--decisions", "folder"], "folder: is a folder, expected a file to write"),
    (["--decisions", "/proc/d.jsonl"], "/proc/d.jsonl: "),
    (["--requests", "no/r.csv"], "no/r.csv: its folder no does not exist"),
    (["--requests", "r.txt"], "r.txt: expected a name that ends in .csv or .parquet"),
    (["--requests", "r"], "r: expected a name that ends in .csv or .parquet"),
    (["--perfetto", "no/p.json"], "no/p.json: its folder no does not exist"),
    (["--perfetto", "folder"], "folder: is a folder, expected a file to write"),
    (["--decisions", "study.yaml"], "--decisions study.yaml: is the scenario"),
    (
        ["--decisions", "x.csv", "--requests", "./x.csv"],
        "--requests x.csv: is the file of --decisions already",
    ),
]


@pytest.mark.parametrize(("arguments", "line"), USAGE, ids=[" ".join(a) for a, _ in USAGE])
def test_usage_wrong_says_what_and_points_to_help(refused_bare, scenario, arguments, line):
    """The option or argument is named; no usage screen, no box."""
    assert refused_bare(*arguments) == line


@pytest.mark.parametrize(("options", "line"), PATHS, ids=[" ".join(o) for o, _ in PATHS])
def test_run_output_that_cannot_be_written_stops_before_the_run(
    refused_bare, scenario, monkeypatch, options, line
):
    """Nobody waits for an hour to learn that the folder is missing."""

    def never(*arguments, **options):
        raise AssertionError("the simulation was started")

    monkeypatch.setattr(sim.commands.running.simulate, "simulate", never)
    Path("folder").mkdir()
    Path("file").write_bytes(b"mine")
    arguments = [*options] if "--out" in options else [*options, "--out", "out"]
    assert refused_bare("run", scenario, *arguments).startswith(line)


def test_run_decision_log_that_fails_half_way_is_one_line(refused_bare, scenario, monkeypatch):
    """A disk that fills up during the run."""

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sim.commands.running.simulate, "simulate", full)
    line = refused_bare("run", scenario, "--decisions", "d.jsonl")
    assert line == "d.jsonl: cannot be written: No space left on device"


def test_demo_folder_that_is_a_file_is_one_line(refused_bare, folder):
    """The demo too says what is in its way, before it runs."""
    Path("taken").write_bytes(b"mine")
    line = refused_bare("demo", "--out", "taken")
    assert line == "taken: is a file, not a folder"


def test_no_arguments_shows_the_help(capsys, monkeypatch):
    """Not an error: somebody looks around."""
    monkeypatch.setattr("sys.argv", ["simulate"])
    assert main() == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    for command in ("run", "validate", "workload", "demo"):
        assert f"  {command} " in shown.out

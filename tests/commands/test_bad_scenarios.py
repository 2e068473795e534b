"""A scenario with a fault ends a command in one line, with exit code 2, nothing written."""

from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("page_size", "page_sizes", "scheduler.page_sizes: unknown key (did you mean page_size?)"),
        (
            "rate_rps: 20",
            "rate_rps: 1e-300",
            "workload.arrivals: reaches inf years, beyond the clock",
        ),
    ],
    ids=["found in the file", "found when it is built"],
)
def test_run_scenario_with_a_fault_ends_with_that_line(refused, scenario, old, new, line):
    """File, line, key and reason; tests/scenario has every kind of fault."""
    head, tail = Path(scenario).read_text(encoding="utf-8").split(old, 1)
    Path(scenario).write_text(head + new + tail, encoding="utf-8")
    assert refused(scenario) == f"study.yaml:{len(head.splitlines())}: {line}"


def test_run_model_nobody_knows_is_named_with_the_known_ones(refused, scenario):
    """A model is looked up when the scenario is built, and still told by file and line."""
    path = Path(scenario)
    path.write_text("model: llama-3.1-9b\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    line = refused(scenario)
    assert line.startswith("study.yaml:1: model: ")
    assert "llama-3.1-9b" in line
    assert "did you mean llama-3.1-8b?" in line


def test_run_scenario_file_that_is_absent_is_named(refused_bare):
    """No traceback for a mistyped name."""
    assert refused_bare("run", "studdy.yaml") == "studdy.yaml: no such file"


def test_run_scenario_that_is_a_folder_is_named(refused_bare, folder):
    """A folder in the place of a file."""
    (folder / "scenarios").mkdir()
    assert refused_bare("run", "scenarios") == "scenarios: is a directory, not a file"


def test_run_scenario_that_is_not_text_is_told_by_its_line(refused, scenario):
    """Bytes that are not UTF-8."""
    path = Path(scenario)
    path.write_bytes(path.read_bytes().replace(b"seed", b"s\xff\xfed"))
    assert refused(scenario) == "study.yaml:2: not UTF-8 text"


def test_run_option_with_a_fault_is_blamed_itself(refused, scenario):
    """What --set brought in is not looked for in the file."""
    line = refused(scenario, "--set", "scheduler.page_size=0")
    assert line == "--set scheduler.page_size=0: must be at least 1, got 0"


@pytest.mark.parametrize("command", ["run", "validate", "workload"])
def test_every_command_that_reads_a_scenario_ends_alike(refused_bare, scenario, command):
    """The same fault gives the same line everywhere."""
    line = refused_bare(command, scenario, "--set", "seed=-1")
    assert line == "--set seed=-1: must be at least 0, got -1"

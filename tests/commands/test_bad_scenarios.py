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


def test_run_option_with_a_fault_is_blamed_itself(refused, scenario):
    """What --set brought in is not looked for in the file."""
    line = refused(scenario, "--set", "scheduler.page_size=0")
    assert line == "--set scheduler.page_size=0: must be at least 1, got 0"


@pytest.mark.parametrize("command", ["run", "validate", "workload"])
def test_every_command_that_reads_a_scenario_ends_alike(refused_bare, scenario, command):
    """The same fault gives the same line everywhere."""
    line = refused_bare(command, scenario, "--set", "seed=-1")
    assert line == "--set seed=-1: must be at least 0, got -1"

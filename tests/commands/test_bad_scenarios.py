"""A scenario with one fault: one line that names it, exit code 2, nothing written."""

from pathlib import Path

import pytest

# (what is replaced in the valid scenario, by what, the line on stderr)
FAULTS = [
    (
        "page_size: 16",
        "page_sizes: 16",
        "study.yaml:18: scheduler.page_sizes: unknown key (did you mean page_size?)",
    ),
    ("seed: 3", "seed: 3\nseed: 4", "study.yaml:3: duplicate key 'seed', first given on line 2"),
    (
        "page_size: 16",
        "page_size: '16'",
        "study.yaml:18: scheduler.page_size: must be a whole number, got the string '16'",
    ),
    ("step_s: 0.005", "step_s: .nan", "study.yaml:5: .nan is not a finite number"),
    (
        "rate_rps: 20",
        "rate_rps: -20",
        "study.yaml:12: workload.arrivals.rate_rps: must be greater than 0, got -20",
    ),
    (
        "rate_rps: 20",
        "rate_rps: 1e-300",
        "study.yaml:12: workload.arrivals: reaches inf years, beyond the clock",
    ),
    (
        "max_total_tokens: 4096",
        "max_total_tokens: -4096",
        "study.yaml:19: scheduler.max_total_tokens: must be at least 1, got -4096",
    ),
    (
        "max_total_tokens: 4096",
        "max_total_tokens: 99999999999999",
        (
            "study.yaml:19: scheduler.max_total_tokens: must be at most 1099511627776,"
            " got 99999999999999"
        ),
    ),
    (
        "num_requests: 40",
        "num_requests: 1000000000000",
        "study.yaml:11: workload.num_requests: must be at most 100000000, got 1000000000000",
    ),
    ("seed: 3", "replicas: 5000", "study.yaml:2: replicas: must be at most 4096, got 5000"),
    (
        "chunked_prefill_size: 256",
        "chunked_prefill_size: 250",
        "study.yaml:21: scheduler: chunked_prefill_size 250 is not a multiple of page_size 16",
    ),
    (
        "schedule_policy: lpm",
        "schedule_policy: lmp",
        "study.yaml:17: scheduler.schedule_policy: unknown policy 'lmp' (did you mean lpm?)",
    ),
    ("name: study\n", "", "study.yaml:1: name: is required"),
]


@pytest.mark.parametrize(("old", "new", "line"), FAULTS, ids=[new for _, new, _ in FAULTS])
def test_run_scenario_with_a_fault_ends_with_that_line(refused, scenario, old, new, line):
    """File, line, key and reason; a near name where there is one."""
    path = Path(scenario)
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    assert refused(scenario) == line


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


@pytest.mark.parametrize(
    ("option", "line"),
    [
        (
            "scheduler.page_size=0",
            "--set scheduler.page_size=0: must be at least 1, got 0",
        ),
        (
            "scheduler.page_sizes=16",
            "--set scheduler.page_sizes=16: unknown key (did you mean page_size?)",
        ),
        ("scheduler.page_size", "--set scheduler.page_size: must have the form key.path=value"),
    ],
)
def test_run_option_with_a_fault_is_blamed_itself(refused, scenario, option, line):
    """What --set brought in is not looked for in the file."""
    assert refused(scenario, "--set", option) == line


@pytest.mark.parametrize("command", ["run", "validate", "workload"])
def test_every_command_that_reads_a_scenario_ends_alike(refused_bare, scenario, command):
    """The same fault gives the same line everywhere."""
    line = refused_bare(command, scenario, "--set", "seed=-1")
    assert line == "--set seed=-1: must be at least 0, got -1"

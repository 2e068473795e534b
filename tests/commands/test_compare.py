"""`simulate compare`: two logs, or a log decided again on a scenario."""

import json
from pathlib import Path

import pytest

from tests.support.conformance import ReferenceCase, scenario_of

MEMORY_CASES = Path(__file__).parents[1] / "conformance/memory_cases"


@pytest.fixture
def log(simulate, scenario):
    """The decision log of study.yaml."""
    assert simulate("run", scenario, "--decisions", "a.jsonl.gz").code == 0
    return "a.jsonl.gz"


def num_steps(simulate, scenario):
    return json.loads(simulate("run", scenario, "--format", "json").out)["simulated_steps"]


def test_compare_logs_of_the_same_run_are_the_same(simulate, scenario, log):
    """With and without fast-forward, packed and plain."""
    simulate("run", scenario, "--no-fast-forward", "--decisions", "b.jsonl")
    total = num_steps(simulate, scenario)
    assert simulate("compare", log, "b.jsonl") == (0, f"all {total:,} steps are the same\n", "")


def test_compare_logs_of_two_settings_shows_the_first_difference(simulate, scenario, log):
    """Side by side, what differs marked."""
    override = ("--set", "scheduler.max_running_requests=2")
    simulate("run", scenario, *override, "--decisions", "b.jsonl")
    ended = simulate("compare", log, "b.jsonl")
    assert ended.code == 0
    assert ended.out.startswith("step ")
    assert "\n*prefill " in ended.out


@pytest.mark.parametrize("mode", ["true", "false"])
def test_compare_log_with_its_scenario_is_decided_again(simulate, scenario, mode):
    """Its arrivals and times, fed to fresh engines, lead to the same decisions."""
    options = ("--set", f"scheduler.disable_overlap_schedule={mode}", "--set", "replicas=2")
    simulate("run", scenario, *options, "--decisions", "a.jsonl")
    ended = simulate("compare", "a.jsonl", scenario, *options)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.endswith(" steps are decided the same again\n")


def test_compare_decides_again_at_once_beside_a_copy_to_host_memory(simulate):
    """A decision gives up the only running request and launches nothing; a copy has not ended."""
    case = ReferenceCase(MEMORY_CASES, "windows_host_gives_up")
    rows = [json.dumps(row) for row in case.read_lines("workload")]
    Path("workload.jsonl").write_text("\n".join(rows), encoding="utf-8")
    Path("case.yaml").write_text(json.dumps(scenario_of(case.config())), encoding="utf-8")
    simulate("run", "case.yaml", "--decisions", "a.jsonl")
    ended = simulate("compare", "a.jsonl", "case.yaml")
    assert ended.out.endswith(" steps are decided the same again\n")


def test_compare_log_with_another_setting_diverges(simulate, scenario, log):
    """The replay stops where a server with two slots would have decided otherwise."""
    ended = simulate("compare", log, scenario, "--set", "scheduler.max_running_requests=2")
    assert ended.out.startswith("replica 0, step ")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{", "b.jsonl:1: not JSON"),
        ("[]", "b.jsonl:1: not a JSON object"),
        ('{"kind":"note"}', "b.jsonl:1: kind: must be one of step, req, got the string 'note'"),
        ('{"kind":"step"}', "b.jsonl:1: replica: missing"),
        ("", 'b.jsonl: no line with "kind": "step"'),
    ],
)
def test_compare_bad_log_is_refused_in_one_line(refused_bare, log, text, line):
    """File, line and key."""
    Path("b.jsonl").write_text(text, encoding="utf-8")
    assert refused_bare("compare", log, "b.jsonl") == line


def test_compare_foreign_log_is_refused(refused_bare, log):
    """A log whose requests the scenario does not have cannot be replayed on it."""
    scenario = Path("study.yaml").read_text(encoding="utf-8")
    Path("other.yaml").write_text(scenario.replace("num_requests: 40", "num_requests: 7"))
    assert refused_bare("compare", log, "other.yaml").startswith(f"{log}: request 7 is not in")


def test_compare_override_without_a_scenario_is_refused(refused_bare, log):
    """`--set` says nothing about a log."""
    line = refused_bare("compare", log, log, "--set", "seed=1")
    assert line == f"--set seed=1: {log} is a log, not a scenario"

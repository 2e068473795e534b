"""`calibrate fit` and `calibrate show`, and a scenario that uses what they made."""

import json
from pathlib import Path

import pytest

from sim.cli import main as simulate

SCENARIO = """\
name: fitted
latency: {kind: profile, path: made.json}
workload:
  kind: synthetic
  num_requests: 30
  arrivals: {kind: poisson, rate_rps: 20}
  prompt_tokens: {kind: uniform, min: 20, max: 300}
  output_tokens: {kind: uniform, min: 1, max: 30}
scheduler: {page_size: 16, max_total_tokens: 8192, context_length: 2048}
"""


@pytest.fixture
def log(linear, write_log):
    """A log with decode and extend points."""
    device = linear()
    return write_log([*device.decodes(), *device.extends()])


def test_fit_command_writes_a_profile_and_says_how_good_it_is(calibrate, log):
    """Errors by mode, terms with units, and what a reader should know beside them."""
    code, out, err = calibrate("fit", log, "-o", "made.json", "--label", "a device [of mine]")
    assert (code, err) == (0, "")
    assert "held-out error of" in out
    assert "padded decode rows" in out
    assert "query-key pair" in out
    assert "mixed steps were not measured" in out
    assert "scheduling was not measured" in out
    assert out.endswith("profile: made.json\n")
    data = json.loads(Path("made.json").read_text(encoding="utf-8"))
    assert (data["name"], data["label"]) == ("made", "a device [of mine]")
    assert data["created_from"][0]["file"] == "a.jsonl"


def test_show_command_prints_fingerprint_range_terms_and_errors(calibrate, log):
    """Everything about a profile on one page."""
    calibrate("fit", log, "-o", "made.json", "--label", "a device [of mine]")
    code, out, err = calibrate("show", "made.json")
    assert (code, err) == (0, "")
    for words in (
        "a device [of mine]",
        "made up",
        "fitted on",
        "a.jsonl (profile): 245 points",
        "mean decode context",
        "without a graph",
        "MAPE %",
    ):
        assert words in out


def test_fit_command_same_input_same_file(calibrate, log):
    """To the byte, under any name of the log's folder."""
    calibrate("fit", log, "-o", "made.json", "--name", "x")
    calibrate("fit", log.resolve(), "-o", "again.json", "--name", "x")
    assert Path("made.json").read_bytes() == Path("again.json").read_bytes()


def test_fitted_profile_drives_a_scenario_and_warns_outside_its_range(calibrate, log, capsys):
    """A path beside the scenario; one warning line on stderr, and the same in the summary."""
    calibrate("fit", log, "-o", "made.json")
    Path("study.yaml").write_text(SCENARIO, encoding="utf-8")
    assert simulate(["run", "study.yaml", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["completed"] == 30
    assert err == ""
    far = ["--set", "workload.prompt_tokens={kind: constant, value: 9}"]
    assert simulate(["run", "study.yaml", "--format", "json", *far]) == 0
    out, err = capsys.readouterr()
    assert err.startswith("servetwin: warning: ")
    assert "prefill tokens from 9, measured from 16" in err
    assert err == f"servetwin: warning: {json.loads(out)['left_range']}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fit", "absent.jsonl", "-o", "made.json"), r"absent.jsonl: No such file or directory"),
        (("fit", "a.jsonl", "-o", "made.txt"), r"made.txt: expected a name that ends in .json"),
        (("fit", "a.jsonl", "-o", "no/made.json"), r"no/made.json: its folder no does not exist"),
        (("fit", "a.jsonl", "-o", "made.json", "--folds", "1"), r"--folds"),
        (("fit", "-o", "made.json"), r"Missing argument 'LOG...'"),
        (("show", "absent.json"), r"absent.json: No such file or directory"),
        (("show", "absent"), r"latency.path: unknown profile 'absent'"),
    ],
)
def test_commands_bad_input_is_one_line(calibrate, log, arguments, message):
    """Exit code 2, nothing on stdout, no file."""
    code, out, err = calibrate(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert not Path("made.json").exists()

"""`calibrate fit` and `calibrate show`, and a scenario that uses the fitted profile."""

import json
import shutil
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest

from calibrate.cli import main
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


@pytest.fixture(scope="module")
def log(linear, log_in, tmp_path_factory):
    """A log with decode and extend points."""
    device = linear()
    return log_in(tmp_path_factory.mktemp("log"), [*device.decodes(), *device.extends()])


class Fitted(NamedTuple):
    """A fit of the log: how the command ended, what it printed and what it wrote."""

    code: int
    out: str
    err: str
    profile: bytes


@pytest.fixture(scope="module")
def fitted(log, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fitted")
    with (
        chdir(folder),
        redirect_stdout(StringIO()) as out,
        redirect_stderr(StringIO()) as err,
    ):
        code = main(["fit", str(log), "-o", "made.json", "--label", "a device [of mine]"])
        return Fitted(code, out.getvalue(), err.getvalue(), Path("made.json").read_bytes())


@pytest.fixture
def made(folder, fitted):
    """The fitted profile, in the test's own folder."""
    Path("made.json").write_bytes(fitted.profile)
    return "made.json"


def test_fit_command_writes_a_profile_and_says_how_good_it_is(fitted):
    """Errors by mode, terms with units, and what a reader should know beside them."""
    assert (fitted.code, fitted.err) == (0, "")
    assert "held-out error of" in fitted.out
    assert "padded decode rows" in fitted.out
    assert "query-key pair" in fitted.out
    assert "mixed steps were not measured" in fitted.out
    assert "scheduling was not measured" in fitted.out
    assert fitted.out.endswith("profile: made.json\n")
    data = json.loads(fitted.profile)
    assert (data["name"], data["label"]) == ("made", "a device [of mine]")
    assert data["created_from"][0]["file"] == "a.jsonl"


def test_show_command_prints_fingerprint_range_terms_and_errors(calibrate, made):
    """Everything about a profile on one page."""
    code, out, err = calibrate("show", made)
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


def test_fit_command_same_input_same_file(calibrate, log, fitted):
    """Files are equal to the byte, in whatever folder the log is."""
    shutil.copy(log, "a.jsonl")
    label = ("--label", "a device [of mine]")
    calibrate("fit", "a.jsonl", "-o", "again.json", "--name", "made", *label)
    assert Path("again.json").read_bytes() == fitted.profile


def test_fitted_profile_drives_a_scenario_and_warns_outside_its_range(made, capsys):
    """A path beside the scenario; one warning line on stderr, and the same in the summary."""
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
        (
            ("fit", "absent.jsonl", "-o", "made.json"),
            r"absent.jsonl: cannot be read: No such file or directory",
        ),
        (("fit", "a.jsonl", "-o", "made.txt"), r"made.txt: expected a name that ends in .json"),
        (("fit", "a.jsonl", "-o", "no/made.json"), r"no/made.json: its folder no does not exist"),
        (("fit", "a.jsonl", "-o", "made.json", "--folds", "1"), r"--folds"),
        (("fit", "-o", "made.json"), r"Missing argument 'FILE...'"),
        (("show", "absent.json"), r"absent.json: cannot be read: No such file or directory"),
        (("show", "absent"), r"calibrate: unknown profile 'absent'"),
    ],
)
def test_commands_bad_input_is_one_line(calibrate, log, arguments, message):
    """Exit code 2, nothing on stdout, no file."""
    shutil.copy(log, "a.jsonl")
    code, out, err = calibrate(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert not Path("made.json").exists()

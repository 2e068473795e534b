"""The commands that are announced but not built answer plainly."""

import subprocess
import sys

import pytest

from calibrate.cli import main as calibrate
from realrun.cli import main as realrun

COMMANDS = [("calibrate", calibrate), ("realrun", realrun)]


@pytest.mark.parametrize(("name", "main"), COMMANDS)
@pytest.mark.parametrize("arguments", [[], ["run"], ["fit", "log.jsonl", "-o", "x"], ["--he"]])
def test_unbuilt_command_any_argument_is_refused_in_one_line(name, main, arguments, capsys):
    """Exit code 2, one line on stderr, nothing on stdout."""
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"{name}: not built yet")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(("name", "main"), COMMANDS)
def test_unbuilt_command_help_answers(name, main, capsys):
    """`--help` describes the command on stdout and exits with 0."""
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    assert f"usage: {name}" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["calibrate", "realrun"])
def test_unbuilt_command_runs_as_a_module(name):
    """`python -m` hands the exit code on."""
    done = subprocess.run([sys.executable, "-m", name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{name}: not built yet")

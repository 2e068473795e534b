"""`--version` of every command line."""

import pytest

import calibrate.cli
import realrun.cli
import sim.cli
from sim import __version__
from sim.command_line import is_compiled


@pytest.mark.parametrize("cli", [sim.cli, calibrate.cli, realrun.cli])
def test_version_says_which_and_how_it_was_built(cli, capsys):
    """One line on stdout, no command needed."""
    assert cli.main(["--version"]) == 0
    build = "compiled" if is_compiled() else "pure Python"
    assert capsys.readouterr().out == f"servetwin {__version__} ({build})\n"

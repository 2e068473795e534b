"""`--version` of every command line."""

import pytest

import calibrate.cli
import realrun.cli
import sim.cli
from sim import __version__
from sim.compiled.finder import why_pure


@pytest.mark.parametrize("cli", [sim.cli, calibrate.cli, realrun.cli])
def test_version_says_which_and_how_it_was_built(cli, capsys):
    """One line on stdout, no command needed."""
    assert cli.main(["--version"]) == 0
    reason = why_pure()
    build = "compiled" if reason is None else f"pure Python: {reason}"
    assert capsys.readouterr().out == f"servetwin {__version__} ({build})\n"

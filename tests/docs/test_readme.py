"""README shows what its commands print, and its scenarios run."""

import re
import shlex
from pathlib import Path

from sim.cli import main

REPOSITORY = Path(__file__).parents[2]
TEXT = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def test_readme_sweep_prints_what_it_shows(tmp_path, monkeypatch, capsys):
    """And the settings that it compares differ."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenarios").symlink_to(REPOSITORY / "scenarios")
    [block] = re.findall(r"^```console\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    command, _, shown = block.partition("\n")
    assert main(shlex.split(command)[2:]) == 0
    printed = capsys.readouterr().out
    assert printed == shown
    assert len({line.split(maxsplit=3)[-1] for line in printed.splitlines()[-4:]}) == 4


def test_readme_scenarios_are_valid(capsys):
    """All that it runs."""
    names = set(re.findall(r"scenarios/[\w./-]+\.yaml", TEXT))
    assert len(names) >= 3
    for name in names:
        assert main(["validate", str(REPOSITORY / name)]) == 0

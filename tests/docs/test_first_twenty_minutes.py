"""The recording shows what its commands print, and README runs scenarios that are valid."""

import re
import shlex
from pathlib import Path

import calibrate.cli
import sim.cli

REPOSITORY = Path(__file__).parents[2]
TEXT = (REPOSITORY / "docs" / "first-twenty-minutes.md").read_text(encoding="utf-8")
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
PROGRAMS = {"simulate": sim.cli.main, "calibrate": calibrate.cli.main}
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_recording_prints_what_it_shows(tmp_path, monkeypatch, capsys, no_workers):
    """In a folder with nothing but what ships."""
    monkeypatch.chdir(tmp_path)
    for name in ("scenarios", "data"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    num_commands = 0
    for block in BLOCK.findall(TEXT):
        printed = []
        for line in (line for line in block.splitlines() if line.startswith("$ ")):
            program, *arguments = shlex.split(line[2:])
            is_redirected = ">" in arguments
            assert PROGRAMS[program](arguments[:-2] if is_redirected else arguments) == 0
            out = capsys.readouterr().out
            printed += [line, *([] if is_redirected else out.splitlines())]
            num_commands += 1
        assert printed == block.splitlines()
    assert num_commands == 10


def test_readme_names_valid_scenarios(capsys):
    """All that it runs."""
    names = set(re.findall(r"scenarios/[\w./-]+\.yaml", README))
    assert len(names) >= 3
    for name in names:
        assert sim.cli.main(["validate", str(REPOSITORY / name)]) == 0

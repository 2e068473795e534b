"""The tutorial shows what its commands print."""

import re
from pathlib import Path

from sim.cli import main

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r'^```(yaml|console)(?: title="([^"]*)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)


def test_tutorial_prints_what_it_shows(tmp_path, monkeypatch, capsys, no_workers):
    """Every file is written and every command is run, in the order of the page."""
    monkeypatch.chdir(tmp_path)
    num_commands = 0
    for kind, title, content in BLOCK.findall(TUTORIAL.read_text(encoding="utf-8")):
        if kind == "yaml":
            write(title, content)
            continue
        printed = []
        for line in filter(lambda line: line.startswith("$ simulate "), content.splitlines()):
            words, _, redirected = line.partition(" > ")
            assert main(words.split()[2:]) == 0
            out = capsys.readouterr().out
            printed += [line, *([] if redirected else out.splitlines())]
            num_commands += 1
        assert printed == content.splitlines()
    assert num_commands == 8


def write(title, content):
    """A file of the tutorial: `NAME`, or `NAME, at the end` for lines to be added."""
    name, _, is_added = title.partition(", ")
    with Path(name).open("a" if is_added else "w", encoding="utf-8") as file:
        file.write(content)

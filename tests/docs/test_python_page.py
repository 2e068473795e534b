"""The examples of docs/reference/python.md print what the page says."""

import contextlib
import io
import re
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "reference" / "python.md"


def examples(text):
    """Every statement at a prompt, with the lines that follow it."""
    for block in re.findall(r"^```pycon\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^(?=>>> )", block, flags=re.MULTILINE)[1:]:
            lines = part.splitlines()
            code = [line for line in lines if line.startswith((">>> ", "... "))]
            source = "".join(f"{line[4:]}\n" for line in code)
            yield source, "\n".join(lines[len(code) :]).rstrip()


def replayed(source, names):
    """What a prompt would print."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, str(PAGE), "single"), names)  # noqa: S102 - our own page
    return "\n".join(line.rstrip() for line in printed.getvalue().rstrip().splitlines())


def test_examples_print_what_the_page_says(monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setattr(sys, "displayhook", sys.__displayhook__)
    names = {}
    shown = list(examples(PAGE.read_text(encoding="utf-8")))
    assert len(shown) > 15
    for source, expected in shown:
        assert replayed(source, names) == expected, source

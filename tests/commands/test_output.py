"""Tables are fitted and coloured on a terminal, and are the same text everywhere else."""

import io
import sys

import pytest

from sim.commands.output import print_table
from sim.tables.table import Coloured, Column, Table, columns_of

TABLE = Table(
    [Column("a [b]", is_text=True), *columns_of(numbers=["n"])],
    [["some words that are long", Coloured("+1", "green")], ["[x]", "-2"]],
    note="a note",
)


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def environment(monkeypatch):
    """A terminal of 20 columns and 16 colours."""
    for name, value in {"TERM": "xterm", "COLUMNS": "20", "LINES": "30"}.items():
        monkeypatch.setenv(name, value)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)


def test_table_on_a_terminal_is_as_wide_as_it_and_coloured(environment, monkeypatch):
    """Long texts are broken into lines; brackets are no markup; the header is bold."""
    monkeypatch.setattr(sys, "stdout", Terminal())
    print_table(TABLE)
    shown = sys.stdout.getvalue()
    monkeypatch.undo()
    assert "\x1b[32m+1" in shown
    assert "\x1b[1m" in shown
    for words in ("a [b]", "[x]", "-2", "a note"):
        assert words in shown
    assert "some words that are long" not in shown


def test_table_elsewhere_is_its_text(capsys):
    """The same bytes in a pipe and in a file."""
    print_table(TABLE)
    assert capsys.readouterr().out == TABLE.text() == (
        "a [b]                       n\n"
        "─────────────────────────────\n"
        "some words that are long   +1\n"
        "[x]                        -2\n"
        "a note\n"
    )  # fmt: skip

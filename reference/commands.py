"""Pages that list every command, argument and option of the three programs, from their help."""

import inspect
from collections.abc import Iterator
from html import escape
from typing import Any

import typer.main

import calibrate.cli
import realrun.cli
import sim.cli
import sim.command_line
from reference.tables import keys_table

FOLDER = "reference/commands"
_WIDTH = 78  # of usage lines, on whatever terminal they are made
_PROGRAMS = {one.PROGRAM.name: one.PROGRAM for one in (sim.cli, calibrate.cli, realrun.cli)}


def command_pages() -> dict[str, str]:
    """The text of each page, by its path below `docs`."""
    return {f"{FOLDER}/{program}.md": _page_text(program) for program in _PROGRAMS}


def _page_text(program: str) -> str:
    group: Any = typer.main.get_command(_PROGRAMS[program].app())
    above = group.make_context(program, [], resilient_parsing=True, terminal_width=_WIDTH)
    blocks = [f"# {program}", str(group.help), _endings()]
    for name, command in group.commands.items():
        blocks += _command_blocks(name, command, above)
    return "\n\n".join(blocks) + "\n"


def _endings() -> str:
    """The exit codes of all commands, from the docstring of the module that sets them."""
    _title, *paragraphs = (inspect.getdoc(sim.command_line) or "").split("\n\n")
    return "\n\n".join(" ".join(text.split()) for text in paragraphs)


def _command_blocks(name: str, command: Any, above: Any) -> Iterator[str]:
    """A heading, what the command does, its usage, and a table of arguments and options."""
    context = command.make_context(name, [], parent=above, resilient_parsing=True)
    yield f"## {context.command_path}"
    yield inspect.cleandoc(command.help)
    yield f"```text\n{command.get_usage(context).removeprefix('Usage: ')}\n```"
    records = [param.get_help_record(context) for param in command.get_params(context)]
    rows = [
        (f"<code>{_cell(words)}</code>", _cell(meaning)) for words, meaning in filter(None, records)
    ]
    yield keys_table(("argument or option", "meaning"), rows)


def _cell(text: str) -> str:
    """The text as one line, with the characters escaped that Markdown or HTML would interpret."""
    line = escape(" ".join(text.split()), quote=False)
    return line.replace("*", "&#42;").replace("|", "&#124;")

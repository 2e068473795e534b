"""The commands that documents show are valid."""

import re
import shlex
from pathlib import Path

import pytest
import typer.main

import calibrate.cli
import realrun.cli
import sim.cli
from sim.commands.plan import Question

REPOSITORY = Path(__file__).parents[2]
APPS = {cli.PROGRAM.name: cli.PROGRAM.app() for cli in (sim.cli, calibrate.cli, realrun.cli)}
DOCUMENTS = [
    REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md",
    *sorted((REPOSITORY / "docs").rglob("*.md")),
]  # fmt: skip
# This page is made from the help texts: it shows usages, not commands.
COMMANDS_FOLDER = REPOSITORY / "docs" / "reference" / "commands"


def shown_commands(path):
    """The lines of a document's code blocks that begin with one of the programs."""
    text = path.read_text(encoding="utf-8")
    for block in re.findall(r"^```(?:console)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            for command in line.removeprefix("$ ").split(" && "):
                if command.partition(" ")[0] in APPS:
                    yield shlex.split(command, comments=True)


COMMANDS = [
    pytest.param(words, id=f"{path.relative_to(REPOSITORY)}-{number}")
    for path in DOCUMENTS
    if path.parent != COMMANDS_FOLDER
    for number, words in enumerate(shown_commands(path))
]


def test_documents_show_commands_of_every_program():
    """The pattern above finds them."""
    assert {words[0] for case in COMMANDS for words in case.values} == set(APPS)


@pytest.mark.parametrize("words", COMMANDS)
def test_shown_command_parses(words):
    """Its arguments and options exist, and their values are of the right type."""
    program, *arguments = words
    if ">" in arguments:
        arguments = arguments[: arguments.index(">")]
    if arguments == ["--version"]:
        return
    group = typer.main.get_command(APPS[program])
    name, *rest = arguments
    group.commands[name].make_context(f"{program} {name}", rest)


PLANS = [case for case in COMMANDS if case.values[0][:2] == ["simulate", "plan"]]


@pytest.mark.parametrize("words", PLANS)
def test_shown_plan_has_a_scenario_or_asks_a_question(words):
    """Never both: options of a question are refused beside a scenario."""
    group = typer.main.get_command(APPS["simulate"])
    values = group.commands["plan"].make_context("simulate plan", list(words[2:])).params
    asked = {name: values[name] for name in Question.__dataclass_fields__ if name in values}
    assert (values["file"] is None) == any(asked.values())


def runs_in(page):
    """The runs that a page shows, each with the lines that it prints; `...` stands for some."""
    text = (REPOSITORY / "docs" / page).read_text(encoding="utf-8")
    flags = re.MULTILINE | re.DOTALL
    for block in re.findall(r"^```console\n(\$ simulate run .*?)^```", text, flags):
        command, *lines = block.splitlines()
        yield pytest.param(shlex.split(command)[2:], lines, id=command)


@pytest.mark.parametrize(("arguments", "lines"), list(runs_in("how-to/disaggregation.md")))
def test_runs_print_what_the_page_shows(arguments, lines, monkeypatch, capsys):
    monkeypatch.chdir(REPOSITORY)
    assert sim.cli.main(arguments) == 0
    printed = iter(capsys.readouterr().out.splitlines())
    for line in lines:
        assert line == "..." or line in printed

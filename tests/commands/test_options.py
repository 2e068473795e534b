"""Options that all programs share: the same names, and what a shell needs to complete them."""

import os
import subprocess
import sys

import pytest
import typer.main

import calibrate.cli
import realrun.cli
import sim.cli
from reference.commands import command_pages

APPS = {cli.PROGRAM.name: cli.PROGRAM.app() for cli in (sim.cli, calibrate.cli, realrun.cli)}
COMMANDS = {
    f"{program} {name}": command
    for program, app in APPS.items()
    for name, command in typer.main.get_command(app).commands.items()
}
# The same name in every command that has the option: its flags and what its value stands for.
SHARED = {
    "--out": (["-o", "--out"], {"DIR", "FILE", "DIR|FILE"}),
    "--set": (["--set"], {"KEY.PATH=VALUE"}),
    "--format": (["--format"], {None}),
    "--from": (["--from"], {None}),
    "--jobs": (["--jobs"], {None}),
    "--seed": (["--seed"], {None}),
    "--log": (["--log"], {"FILE"}),
}


def options():
    for name, command in COMMANDS.items():
        for param in command.params:
            if param.opts[0].startswith("-") and not param.hidden:
                yield name, param


@pytest.mark.parametrize("flag", SHARED)
def test_option_is_the_same_everywhere(flag):
    flags, values = SHARED[flag]
    found = [(name, param) for name, param in options() if flag in param.opts]
    assert found
    for name, param in found:
        assert param.opts == flags, name
        assert param.metavar in values, name


def test_paths_of_options_are_called_file_or_dir():
    """So a user sees what is expected; the reference is made from the commands."""
    rows = [row for page in command_pages().values() for row in page.splitlines()]
    assert not [row for row in rows if row.startswith("| <code>-") and "&lt;path" in row]


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_printed(capsys, name, flag):
    """Of the program and of each of its commands."""
    program, command = name.split()
    mains = {"simulate": sim.cli.main, "calibrate": calibrate.cli.main, "realrun": realrun.cli.main}
    assert mains[program]([command, flag]) == 0
    assert f"Usage: {name}" in capsys.readouterr().out
    assert mains[program]([flag]) == 0
    assert command in capsys.readouterr().out


@pytest.mark.parametrize("program", APPS)
def test_shell_completes_commands_and_options(program):
    """As the script does that `--install-completion` puts into the shell's start file."""
    module = {"simulate": "sim", "calibrate": "calibrate", "realrun": "realrun"}[program]

    def completed(words):
        asked = {
            f"_{program.upper()}_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        }
        done = subprocess.run(
            [sys.executable, "-m", f"{module}.cli"],
            env=os.environ | asked, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert not done.stderr
        return done.stdout.split()

    names = [name.split()[1] for name in COMMANDS if name.startswith(program)]
    assert set(names) <= set(completed(f"{program} "))
    assert "--out" in completed(f"{program} {names[0] if program != 'realrun' else 'runs'} --o")


@pytest.mark.parametrize(
    ("main", "command", "old"),
    [
        (sim.cli.main, "import", "--format"),
        (calibrate.cli.main, "fit", "--format"),
        (sim.cli.main, "workload", "--trace"),
    ],
)
def test_old_spelling_of_the_input_format_names_the_new_one(capsys, main, command, old):
    """`--format` is what a command prints; `--from` is what it reads."""
    out = [] if command == "workload" else ["--out", "out"]
    assert main([command, "x", old, "json", *out]) == 2
    assert capsys.readouterr().err.endswith(f": {old}: the format of what is read is --from now\n")


def test_old_spelling_of_disaggregated_servers_names_the_new_one(capsys):
    """One word for one idea, in keys and options."""
    assert sim.cli.main(["plan", "--apart", "50"]) == 2
    reason = "--apart: the network bandwidth of a GPU is --disaggregated now"
    assert capsys.readouterr().err == f"simulate: {reason}\n"

"""`python -m sim.new KIND NAME`: writes a class of one's own to begin with, and its test."""

import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from sim.command_line import new_app, run_app
from sim.commands.output import print_line
from sim.new.write import KINDS, StartKind, write_start

Name = Annotated[str, typer.Argument(metavar="NAME", help="name of the module, such as my_router")]

app = new_app(
    "Write a class of your own to begin with: NAME.py, its test, and a scenario that names it."
    " See docs/how-to/plug-in.md."
)


def _command(kind: StartKind) -> Callable[[str], None]:
    def write(name: Name) -> None:
        written = write_start(kind, name)
        print_line(f"wrote {', '.join(written)}. Next:")
        print_line(f"  python -m pytest test_{name}.py")
        print_line(f"  simulate run {name}.yaml")

    return write


for kind_name, each in KINDS.items():
    app.command(kind_name, help=f"A class that {each.does}: {each.key}.")(_command(each))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    return run_app(app, "python -m sim.new", argv)


if __name__ == "__main__":
    sys.exit(main())

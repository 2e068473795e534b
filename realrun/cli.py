"""The command line `realrun`."""

import sys
from importlib.util import find_spec

import typer

from sim.command_line import Program, Version
from sim.core.errors import InputError
from sim.extras import how_to_install


def need_torch(context: typer.Context, _version: Version = False) -> None:
    """Refuse to start without torch, which every command needs but `replay`."""
    if context.invoked_subcommand == "replay":
        return
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        raise InputError(f"needs {' and '.join(missing)}: {how_to_install('torch')}")


PROGRAM = Program(
    name="realrun",
    about="Serve scenarios on a real paged-attention runner, with the simulator's scheduler.",
    package="realrun.commands",
    commands=("run", "replay", "check", "kernels", "profile", "runs", "serve", "suite"),
    options=need_torch,
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())

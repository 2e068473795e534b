"""`simulate engine`: the environment of an engine that decides in simulations."""

from pathlib import Path
from typing import Annotated

import typer

from sim.command_line import command


@command()
def engine(
    package: Annotated[
        str,
        typer.Argument(
            help="vllm==VERSION or sglang==VERSION; or vllm@ and the folder or address of a source"
        ),
    ],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="the new environment")],
) -> None:
    """Install an engine, without a GPU, whose scheduler is to decide."""
    from sim.commands.output import print_line
    from sim.installed.environment import InstalledEngine
    from sim.installed.install import install_engine
    from sim.installed.process import EngineProcess
    from sim.user.objects import fail_at_key

    name = install_engine(package, folder)
    installed = InstalledEngine(name, folder, fail_at_key)
    version = EngineProcess(installed).version()
    print_line(f"{name} {version}: scheduler: {{family: {name}, engine: {folder}}}")

"""The options of commands that answer until Ctrl-C."""

from pathlib import Path
from typing import Annotated

import typer

from sim.command_line import Scenario, Set, out_option


def play_command(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="scenario file (YAML); default: that of the demo"),
    ] = None,
    set_: Set = None,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="port of the page; 0: any free one")
    ] = 0,
    opens: Annotated[
        bool, typer.Option("--open/--no-open", help="open the page in your browser")
    ] = True,
) -> None:
    """Open a page on this computer that simulates anew when a setting is moved."""
    from sim.commands.play import play

    play(file, set_ or (), port=port, opens=opens)


def serve_command(
    file: Scenario,
    set_: Set = None,
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="port; 0: any free one")] = 8000,
    speed: Annotated[
        float, typer.Option(min=0.001, max=1000, help="simulated seconds in a second")
    ] = 1.0,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="tokenizer.json of the model, or its folder; default: tokens are estimated",
        ),
    ] = None,
    out: Annotated[
        Path | None, out_option("folder of the run's results, as of simulate run")
    ] = None,
) -> None:
    """Serve OpenAI's interface from simulated servers, for clients, routers and autoscalers."""
    from sim.commands.serve import serve_scenario

    serve_scenario(
        file, set_ or (), host=host, port=port, speed=speed, tokenizer=tokenizer, out=out
    )

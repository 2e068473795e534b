"""`simulate play`: serves a page on this computer where a scenario's settings can be moved."""

import os
import sys
import webbrowser
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.command_line.command import Set, command

if TYPE_CHECKING:
    from sim.metrics.summary import Summary
    from sim.playground.server import PlayServer
    from sim.runlog import RunLog
    from sim.scenario.build import BuiltScenario
    from sim.scenario.load import LoadedScenario

_DEMO = "demo.yaml"


@command(user_code=True)
def play(
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
    from sim.commands.output import print_line

    with make_server(file, set_ or (), port) as server:
        print_line(f"playground: {server.url} (Ctrl-C ends it)")
        sys.stdout.flush()
        if opens and _has_screen():
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print_line("")


def make_server(path: Path | None, overrides: Sequence[str], port: int) -> "PlayServer":
    """The server, which listens but does not answer yet."""
    from sim.playground.server import PlayServer
    from sim.playground.session import Playground
    from sim.scenario.load import load_scenario, load_scenario_text

    def load(options: Sequence[str]) -> "LoadedScenario":
        options = [*overrides, *options]
        if path is not None:
            return load_scenario(path, options)
        text = files("sim.commands").joinpath(_DEMO).read_text(encoding="utf-8")
        return load_scenario_text(text, options, name=_DEMO)

    return PlayServer(Playground(load, _simulate), port)


def _simulate(built: "BuiltScenario") -> "tuple[RunLog, Summary]":
    from sim.commands.running.simulate import simulate_built, summary_of
    from sim.des.run import RunOptions

    log = simulate_built(built, RunOptions())
    return log, summary_of(log, built.loaded.scenario)


def _has_screen() -> bool:
    """Whether a browser would open a window; browsers of a terminal would cover its text."""
    is_windowed = sys.platform in {"darwin", "win32"}
    return is_windowed or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))

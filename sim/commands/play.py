"""`simulate play`: serves a page on this computer where a scenario's settings can be moved."""

import os
import sys
import webbrowser
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from sim.commands.output import print_line
from sim.commands.run import slo_of
from sim.commands.simulate import simulate_built
from sim.des.run import RunOptions
from sim.metrics.summary import Summary, summarise
from sim.playground.server import PlayServer
from sim.playground.session import Playground
from sim.runlog import RunLog
from sim.scenario.build import BuiltScenario
from sim.scenario.load import LoadedScenario, load_scenario, load_scenario_text

_DEMO = "demo.yaml"


def play(path: Path | None, overrides: Sequence[str], *, port: int, opens: bool) -> None:
    """Serve the page until Ctrl-C.

    Args:
        path: the scenario; None: that of `simulate demo`.
        overrides: `--set` options.
        port: 0: a free one.
        opens: whether to open the page in the user's browser.

    Raises:
        InputError: the scenario is invalid, or the port cannot be used.
    """
    with make_server(path, overrides, port) as server:
        print_line(f"playground: {server.url} (Ctrl-C ends it)")
        sys.stdout.flush()
        if opens and _has_screen():
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print_line("")


def make_server(path: Path | None, overrides: Sequence[str], port: int) -> PlayServer:
    """The server, which listens but does not answer yet."""

    def load(options: Sequence[str]) -> LoadedScenario:
        options = [*overrides, *options]
        if path is not None:
            return load_scenario(path, options)
        text = files("sim.commands").joinpath(_DEMO).read_text(encoding="utf-8")
        return load_scenario_text(text, options, name=_DEMO)

    return PlayServer(Playground(load, _simulate), port)


def _simulate(built: BuiltScenario) -> tuple[RunLog, Summary]:
    log = simulate_built(built, RunOptions())
    return log, summarise(log, slo_of(built.loaded.scenario))


def _has_screen() -> bool:
    """Whether a browser would open a window; browsers of a terminal would cover its text."""
    is_windowed = sys.platform in {"darwin", "win32"}
    return is_windowed or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))

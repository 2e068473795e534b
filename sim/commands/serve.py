"""`simulate serve` and `play`: a simulation behind an address of this machine."""

import os
import sys
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim import __version__
from sim.api.address import Address
from sim.command_line import Scenario, Set, command, out_option
from sim.core.errors import InputError

if TYPE_CHECKING:
    from sim.api.app import ServerInfo
    from sim.metrics.summary import Summary
    from sim.playground.server import PlayServer
    from sim.runlog import RunLog
    from sim.scenario.build import BuiltScenario
    from sim.scenario.load import LoadedScenario


@command(user_code=True)
def serve(
    *,
    file: Scenario,
    set_: Set = None,
    address: Address,
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
    from sim.commands.output import check_folder
    from sim.scenario.build import build
    from sim.scenario.load import load_scenario

    _check_packages()
    loaded = load_scenario(file, set_ or ())
    _refuse_autoscale(loaded)
    built = build(loaded)
    if out is not None:
        check_folder(out, file)
    serve_built(built, address, speed, tokenizer, out)


def _check_packages() -> None:
    from sim.extras import how_to_install

    try:
        for name in ("app", "metrics"):
            import_module(f"sim.api.{name}")
    except ImportError as missing:
        reason = f"simulate serve needs the package {missing.name}: {how_to_install('serve')}"
        raise InputError(reason) from None


def _refuse_autoscale(loaded: "LoadedScenario") -> None:
    reason = "does not go with simulate serve, whose number of servers is constant"
    if loaded.scenario.autoscale is not None:
        raise loaded.error(("autoscale",), reason)
    for name, pool in loaded.pools.items():
        if pool.scenario.autoscale is not None:
            raise loaded.error(("pools", name, "autoscale"), reason)


def serve_built(
    built: "BuiltScenario",
    address: Address,
    speed: float,
    tokenizer: Path | None,
    out: Path | None,
    started: Callable[[int, Callable[[], None]], None] | None = None,
) -> None:
    """Serve clients until Ctrl-C, or until the function is called that `started` gets.

    `started` is called when clients can send requests, with the port and that function.
    """
    from sim.api.answer import texts
    from sim.api.app import Api
    from sim.api.http_server import listen, serve
    from sim.api.live_server import LiveServer
    from sim.api.metrics import Metrics
    from sim.commands.output import print_line
    from sim.commands.recorded_scenario import write_run
    from sim.commands.running.simulate import deployment_of, run_meta, source_of
    from sim.confidence.confidence import before_traffic
    from sim.core.errors import say
    from sim.des.run import RunOptions
    from sim.families import family_named
    from sim.report.confidence_text import serving_line
    from sim.scenario.build import located_errors

    known_texts = texts(tokenizer)
    info = _info(built, tokenizer)
    with listen(address.host, address.port) as listener, located_errors(built.loaded):
        family = family_named(built.loaded.scenario.scheduler.family)
        metrics = Metrics(family.metric_names(), info.model, lambda: server.loads)
        server = LiveServer(
            deployment_of(built),
            _lengths(built),
            metrics=metrics,
            options=RunOptions(meta=run_meta(built, "served simulation")),
            speed=speed,
            keeps_log=out is not None,
        )
        host, port = listener.getsockname()[:2]
        print_line(f"serving {info.model} at http://{host}:{port}/v1 (Ctrl-C ends it)")
        sys.stdout.flush()
        say(f"simulate: {serving_line(before_traffic(built.loaded, source_of(built)))}")
        api = Api(server, known_texts, metrics, info, server.flush_cache, address=address)
        # Ctrl-C, and SIGTERM, which raises the same.
        with suppress(KeyboardInterrupt):
            serve(
                api.app(),
                listener,
                server.run,
                None if started is None else lambda stop: started(port, stop),
            )
        if out is not None:
            write_run(server, built, out)
        server.close()


def _info(built: "BuiltScenario", tokenizer: Path | None) -> "ServerInfo":
    """What the server says about itself."""
    from sim.api.app import ServerInfo
    from sim.engine.server_config import context_tokens
    from sim.families import family_named

    scenario = built.loaded.scenario
    return ServerInfo(
        model=scenario.model if isinstance(scenario.model, str) else scenario.name,
        max_tokens=context_tokens(built.scheduler),
        pool_tokens=built.scheduler.pool_tokens,
        checks_model=family_named(scenario.scheduler.family).checks_model,
        version=str(getattr(built.scheduler, "version", "")),
        tokenizer=None if tokenizer is None else str(tokenizer),
        settings={**scenario.scheduler.model_dump(mode="json"), "servetwin": __version__},
    )


def _lengths(built: "BuiltScenario") -> Iterator[int]:
    """Output tokens of the scenario's requests, again and again."""
    from sim.workload.workload import every_request

    while True:
        for request in every_request(built.workload):
            yield request.script.num_tokens


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
    from sim.commands.running.simulate import simulate_built, summary_with_confidence
    from sim.des.run import RunOptions

    log = simulate_built(built, RunOptions())
    return log, summary_with_confidence(log, built)


def _has_screen() -> bool:
    """Whether a browser would open a window; browsers of a terminal would cover its text."""
    is_windowed = sys.platform in {"darwin", "win32"}
    return is_windowed or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))

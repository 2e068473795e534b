"""`simulate serve`: simulated servers behind OpenAI's interface, in real time or faster."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim import __version__
from sim.command_line.command import Scenario, Set, command, out_option
from sim.core.errors import InputError

if TYPE_CHECKING:
    from sim.api.app import ServerInfo
    from sim.scenario.build import BuiltScenario
    from sim.scenario.load import LoadedScenario


@command(user_code=True)
def serve(
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
    from sim.commands.output import check_folder
    from sim.scenario.build import build
    from sim.scenario.load import load_scenario

    _check_packages()
    loaded = load_scenario(file, set_ or ())
    _refuse_autoscale(loaded)
    built = build(loaded)
    if out is not None:
        check_folder(out, file)
    _serve(built, (host, port), speed, tokenizer, out)


def _check_packages() -> None:
    from sim.extras import how_to_install

    try:
        for name in ("app", "metrics", "run"):
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


def _serve(
    built: "BuiltScenario",
    address: tuple[str, int],
    speed: float,
    tokenizer: Path | None,
    out: Path | None,
) -> None:
    from sim.api.app import Api
    from sim.api.live_server import LiveServer
    from sim.api.metrics import Metrics
    from sim.api.run import listen, serve
    from sim.api.text import texts
    from sim.commands.output import print_line
    from sim.commands.running.served_traffic import write_run
    from sim.commands.running.simulate import deployment_of, run_meta
    from sim.des.run import RunOptions
    from sim.families import family_named
    from sim.scenario.build import located_errors

    known_texts = texts(tokenizer)
    info = _info(built, tokenizer)
    with listen(*address) as listener, located_errors(built.loaded):
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
        app = Api(server, known_texts, metrics, info, server.flush_cache).app()
        # Ctrl-C, and SIGTERM, which raises the same.
        with suppress(KeyboardInterrupt):
            serve(app, listener, server.run)
        if out is not None:
            write_run(server, built, out)


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

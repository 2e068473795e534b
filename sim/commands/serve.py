"""`simulate serve`: simulated servers behind OpenAI's interface, in real time or faster."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sim import __version__
from sim.commands.output import ResultFiles, print_line
from sim.commands.run import slo_of
from sim.commands.served_traffic import SCENARIO, with_traffic, write_traffic
from sim.commands.simulate import deployment_of
from sim.core.errors import InputError
from sim.core.files import write_text
from sim.core.say import say
from sim.des.run import RunOptions
from sim.engine.server_config import context_tokens
from sim.extras import how_to_install
from sim.families import family_named
from sim.metrics.summary import summarise
from sim.report.run_folder import write_out_dir
from sim.scenario.build import BuiltScenario, build, located_errors
from sim.scenario.load import LoadedScenario, load_scenario
from sim.scenario.yaml_writer import yaml_text
from sim.workload.workload import every_request

if TYPE_CHECKING:
    from sim.api.live_server import LiveServer


def serve_scenario(
    path: Path,
    overrides: Sequence[str],
    *,
    host: str,
    port: int,
    speed: float,
    tokenizer: Path | None,
    out: Path | None = None,
) -> None:
    """Serve until Ctrl-C, then write the run's folder.

    Args:
        path: the scenario. Its workload says how long answers are whose clients do not say so.
        overrides: `--set` options.
        host: the address to listen on.
        port: the port; 0: a free one.
        speed: simulated seconds in a second.
        tokenizer: see `sim.api.text.texts`.
        out: the folder of the run; None: nothing is kept.

    Raises:
        InputError: the scenario is invalid, or the address or the folder cannot be used.
    """
    try:
        from sim.api.app import Api
        from sim.api.engine_routes import ServerInfo
        from sim.api.live_server import LiveServer
        from sim.api.metrics import Metrics
        from sim.api.run import listen, serve
        from sim.api.text import texts
    except ImportError as missing:
        reason = f"simulate serve needs the package {missing.name}: {how_to_install('serve')}"
        raise InputError(reason) from None
    loaded = load_scenario(path, overrides)
    _refuse_autoscale(loaded)
    built = build(loaded)
    if out is not None:
        ResultFiles(directory=out).check(path)
    scenario = built.loaded.scenario
    model = scenario.model if isinstance(scenario.model, str) else scenario.name
    family = family_named(scenario.scheduler.family)
    known_texts = texts(tokenizer)
    info = ServerInfo(
        model=model,
        max_tokens=context_tokens(built.scheduler),
        pool_tokens=built.scheduler.pool_tokens,
        checks_model=family.checks_model,
        version=str(getattr(built.scheduler, "version", "")),
        tokenizer=None if tokenizer is None else str(tokenizer),
        settings={**scenario.scheduler.model_dump(mode="json"), "servetwin": __version__},
    )
    with listen(host, port) as listener, located_errors(built.loaded):
        metrics = Metrics(family.metric_names(), model, lambda: server.loads)
        server = LiveServer(
            deployment_of(built),
            _lengths(built),
            metrics=metrics,
            options=RunOptions(meta=_meta(built)),
            speed=speed,
            keeps_log=out is not None,
        )
        address, number = listener.getsockname()[:2]
        print_line(f"serving {model} at http://{address}:{number}/v1 (Ctrl-C ends it)")
        sys.stdout.flush()
        app = Api(server, known_texts, metrics, info, server.flush_cache).app()
        # Ctrl-C, and SIGTERM, which raises the same.
        with suppress(KeyboardInterrupt):
            serve(app, listener, server.run)
        if out is not None:
            write_run(server, built, out)


def _refuse_autoscale(loaded: LoadedScenario) -> None:
    reason = "does not go with simulate serve, whose number of servers is constant"
    if loaded.scenario.autoscale is not None:
        raise loaded.error(("autoscale",), reason)
    for name, pool in loaded.pools.items():
        if pool.scenario.autoscale is not None:
            raise loaded.error(("pools", name, "autoscale"), reason)


def write_run(server: "LiveServer", built: BuiltScenario, out: Path) -> None:
    """Write the folder of the run, if it has requests."""
    log = server.log()
    if not len(log.requests.rid):
        say("servetwin: no request came, so no folder is written")
        return
    write_out_dir(log, summarise(log, slo_of(built.loaded.scenario)), out, built.loaded.raw)
    loaded = built.loaded
    # With those that were refused: a router has given them their turn.
    write_traffic(out, server.answered())
    write_text(out / SCENARIO, yaml_text(with_traffic(dict(loaded.raw), loaded.base_dir, out)))
    print_line(f"{len(log.requests.rid):,} requests served: see {out}")


def _meta(built: BuiltScenario) -> dict[str, object]:
    scenario = built.loaded.scenario
    return {
        "name": scenario.name,
        "seed": scenario.seed,
        "scenario_hash": built.loaded.content_hash,
        "servetwin_version": __version__,
        "source": "served simulation",
    }


def _lengths(built: BuiltScenario) -> Iterator[int]:
    """Output tokens of the scenario's requests, again and again."""
    while True:
        for request in every_request(built.workload):
            yield request.script.num_tokens

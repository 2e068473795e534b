"""`simulate serve`: simulated servers behind OpenAI's interface, in real time or faster."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from sim.commands.output import print_line
from sim.commands.simulate import servers_of
from sim.core.errors import InputError
from sim.des.routers.table import make_router
from sim.des.run import RunOptions
from sim.extras import how_to_install
from sim.families import family_named
from sim.scenario.build import BuiltScenario, build, located_errors
from sim.scenario.load import load_scenario
from sim.workload.workload import every_request


def serve_scenario(
    path: Path,
    overrides: Sequence[str],
    *,
    host: str,
    port: int,
    speed: float,
    tokenizer: Path | None,
) -> None:
    """Serve until Ctrl-C.

    Args:
        path: the scenario. Its workload says how long answers are whose clients do not say so.
        overrides: `--set` options.
        host: the address to listen on.
        port: the port; 0: a free one.
        speed: simulated seconds in a second.
        tokenizer: see `sim.api.text.texts`.

    Raises:
        InputError: the scenario is invalid, or the address cannot be used.
    """
    try:
        from sim.api.app import Api
        from sim.api.live_server import LiveServer
        from sim.api.metrics import Metrics
        from sim.api.run import listen, serve
        from sim.api.text import texts
    except ImportError as missing:
        reason = f"simulate serve needs the package {missing.name}: {how_to_install('serve')}"
        raise InputError(reason) from None
    built = build(load_scenario(path, overrides))
    scenario = built.loaded.scenario
    model = scenario.model if isinstance(scenario.model, str) else scenario.name
    names = family_named(scenario.scheduler.family).metric_names()
    known_texts = texts(tokenizer)
    with listen(host, port) as listener, located_errors(built.loaded):
        metrics = Metrics(names, model, lambda: server.loads)
        server = LiveServer(
            servers_of(built, RunOptions()),
            make_router(scenario.router, built.loaded.base_dir, scenario.seed),
            _lengths(built),
            metrics=metrics,
            speed=speed,
        )
        address, number = listener.getsockname()[:2]
        print_line(f"serving {model} at http://{address}:{number}/v1 (Ctrl-C ends it)")
        serve(Api(server, known_texts, metrics, model).app(), listener, server.run)


def _lengths(built: BuiltScenario) -> Iterator[int]:
    """Output tokens of the scenario's requests, again and again."""
    while True:
        for request in every_request(built.workload):
            yield request.script.num_tokens

"""`calibrate watch`: a twin beside a server, which says when both drift apart, and why."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from sim.command_line import Scenario, Set, command, file_option, out_option

_EVERY_S = 2.0


@command(user_code=True)
def watch(
    *,
    file: Scenario,
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="address of the server, e.g. http://localhost:8000"),
    ] = None,
    replay: Annotated[
        Path | None,
        file_option(
            "recorded scrapes of /metrics instead, each after a line # scraped MICROSECONDS"
        ),
    ] = None,
    log: Annotated[
        Path | None,
        file_option("the server's own log, which may grow: its version and settings"),
    ] = None,
    window: Annotated[
        float, typer.Option(min=1, max=3600, help="length of a window in seconds")
    ] = 20.0,
    every: Annotated[
        float | None,
        typer.Option(min=0.1, max=600, help="with --url: seconds between two scrapes; default: 2"),
    ] = None,
    learn: Annotated[
        int,
        typer.Option(min=3, max=30, help="windows from which the twin's usual error is learned"),
    ] = 6,
    draws: Annotated[int, typer.Option(min=2, max=32, help="simulations of each window")] = 4,
    set_: Set = None,
    out: Annotated[Path | None, out_option("folder for windows.csv and a page")] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65_535, help="port for Prometheus (/metrics) and the page; 0: any free one"
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="with --port: address to listen on; default: 127.0.0.1")
    ] = None,
) -> None:
    """Watch a server beside its twin: what it measures, what it should, and why both drift apart.

    The server is asked for its /metrics only. Ctrl-C ends it.
    """
    from calibrate.watch.exporter import Exporter
    from calibrate.watch.log_tail import LogTail
    from calibrate.watch.loop import watch_all
    from calibrate.watch.outputs import Outputs
    from calibrate.watch.source import metrics_url, scrapes
    from calibrate.watch.twin import WindowTwin
    from calibrate.watch.watcher import Watcher
    from sim.commands.output import check_folder, print_line
    from sim.core.errors import InputError, say
    from sim.core.garbage import usual_collections
    from sim.families import known_metrics
    from sim.scenario.build import build
    from sim.scenario.load import load_scenario
    from sim.server_metrics.scrape import read_dump

    def print_at_once(text: str) -> None:
        print_line(text)
        sys.stdout.flush()

    if url is not None and replay is None:
        every_s = _EVERY_S if every is None else every
        if window < every_s:
            raise InputError("--window: must not be shorter than --every")
        source = scrapes(metrics_url(url), every_s)
    elif replay is not None and url is None:
        if every is not None:
            raise InputError("--every: goes with --url; a dump has its own times")
        source = read_dump(replay, known_metrics())
    else:
        raise InputError("give either --url, a server, or --replay, a recorded dump")
    if host is not None and port is None:
        raise InputError("--host: goes with --port, which is not given")
    address = host or "127.0.0.1"
    loaded = load_scenario(file, set_ or ())
    built = build(loaded)
    watcher = Watcher(
        WindowTwin(built, num_draws=draws, seed=loaded.scenario.seed),
        built.scheduler.family,
        window_s=window,
        num_learned=learn,
        source=str(replay or url),
    )
    tail = None if log is None else LogTail(log, built.scheduler.family)
    if out is not None:
        check_folder(out, file)
    with ExitStack() as opened:
        # Each simulation and each picture leaves cycles, and a watch has no end.
        opened.enter_context(usual_collections())
        exporter = None if port is None else opened.enter_context(Exporter(address, port))
        if exporter is not None:
            say(f"calibrate watch: http://{address}:{exporter.port}/ (page), /metrics (Prometheus)")
        refresh_s = 0 if replay else max(1, round(window))
        outputs = Outputs(print_at_once, out=out, exporter=exporter, refresh_s=refresh_s)
        has_window = watch_all(
            source,
            watcher,
            outputs,
            say=say,
            log_changes=tuple if tail is None else tail.changes,
            is_live=replay is None,
        )
    if not has_window:
        raise InputError(f"{replay}: ends before its first window of {window:g} s")

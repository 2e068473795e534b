"""`simulate timeline`: a log as a page to zoom into, and as a trace for Perfetto."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.command_line.command import command, file_option, out_option
from sim.core.errors import InputError

if TYPE_CHECKING:
    from sim.report.activity import ServerActivity

_FOREVER_S = 2.0**30


@command()
def timeline(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="decision log, or run log")],
    out: Annotated[
        Path | None, out_option("the page; default: LOG.html in the current folder", "FILE")
    ] = None,
    perfetto: Annotated[
        Path | None, file_option("also write a trace for ui.perfetto.dev to this file")
    ] = None,
    begin: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, max=1e8, help="leave out what ends before"),
    ] = None,
    end: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, max=1e8, help="leave out what begins after"),
    ] = None,
) -> None:
    """Draw what servers and requests did over time: a page to zoom into."""
    from sim.commands.output import print_line
    from sim.core.files import check_target, refuse_input, write_text
    from sim.core.packed import name_of
    from sim.report.perfetto import write_activity
    from sim.report.timeline_page import timeline_page

    name = name_of(log).removesuffix(".jsonl")
    page = Path(f"{name}.html") if out is None else out
    targets = [page] if perfetto is None else [page, perfetto]
    if len({path.resolve() for path in targets}) < len(targets):
        raise InputError(f"--perfetto {perfetto}: is the file of --out already")
    for path in targets:
        check_target(path)
    servers = _servers(log, 0.0 if begin is None else begin, _FOREVER_S if end is None else end)
    for path in targets:
        refuse_input(path)
    write_text(page, timeline_page(name, servers))
    if perfetto is not None:
        write_activity(name, servers, perfetto)
    for path in targets:
        print_line(str(path))


def _servers(log: Path, begin_s: float, end_s: float) -> "list[ServerActivity]":
    """What the servers of a log did in a part of the time."""
    from sim.core.units import NS_PER_S
    from sim.report.activity import activity, within
    from sim.runlog.run_log_file import decision_lines

    servers = activity(decision_lines(log))
    if not begin_s < end_s:
        raise InputError(f"--end {end_s:g}: must be above --begin, {begin_s:g}")
    try:
        return within(servers, round(begin_s * NS_PER_S), round(end_s * NS_PER_S))
    except InputError as error:
        raise InputError(f"{log}: {error}") from None

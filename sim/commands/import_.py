"""`simulate import`: makes a scenario of a real server's results, or of command lines.

Results give the workload and the measured run, too. A server's own log gives its settings, its
measured KV pool, and what it tells of the traffic.
"""

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.command_line import command, file_option, out_option, renamed
from sim.core.errors import InputError
from sim.families import RESULT_FORMATS, SERVER_LOG
from sim.workload.results import INFERENCEX

if TYPE_CHECKING:
    from sim.workload.results.model import ReadOptions

    FormatName = str
else:
    FormatName = StrEnum("FormatName", {name: name for name in (*RESULT_FORMATS, SERVER_LOG)})


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLines:
    """The command lines that a scenario is made from in place of results, and the GPUs."""

    command: Annotated[
        str | None,
        typer.Option(
            metavar="LINE",
            help="in place of SOURCE, or with a server's log: a benchmark client's command line",
        ),
    ] = None
    server: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LINE",
            help="with --command: how the server is launched; repeated for prefill and decode"
            " servers, or others that are not alike",
        ),
    ] = None
    hardware: Annotated[
        str | None,
        typer.Option(
            metavar="GPU", help="with --command or a server's log: its GPUs, such as h100_sxm"
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OfServerLog:
    """Options that go with a server's log."""

    results: Annotated[
        Path | None, file_option("with a server's log: the results of its client, for the traffic")
    ] = None
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="with a server's log: the model, if its name is not known"
        ),
    ] = None
    fleet: Annotated[
        bool, typer.Option("--fleet", help="each SOURCE is the log of another of equal servers")
    ] = False


@command()
def import_(
    *,
    out: Annotated[Path, out_option("folder for workload, measured run and scenario")],
    sources: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="SOURCE...",
            help="measured results: a file or a folder; or a server's log: several files, if it"
            " was rotated",
        ),
    ] = None,
    lines: CommandLines,
    of_log: OfServerLog,
    from_: Annotated[
        FormatName | None,
        typer.Option("--from", help="format of the results; default: detected from their content"),
    ] = None,
    _format: Annotated[str | None, renamed("--format", "--from")] = None,
    template: Annotated[
        Path | None,
        file_option("take everything but the traffic from this scenario (YAML)"),
    ] = None,
    line: Annotated[
        int | None, typer.Option(min=1, help="read this line of a file with one run on each line")
    ] = None,
    draw_arrivals: Annotated[
        int | None,
        typer.Option(
            metavar="SEED", min=0, help="draw random arrival times if the results have none"
        ),
    ] = None,
) -> None:
    """Turn measured results, a server's log, or a benchmark's command lines, into a scenario."""
    from sim.commands.import_commands import import_command_lines
    from sim.commands.import_results import is_server_log, recognise
    from sim.workload.results.model import ReadOptions

    read = ReadOptions(line=line, draw_arrivals=draw_arrivals)
    if not sources:
        of_source = {"from": from_, "template": template, **read._asdict(), **asdict(of_log)}
        _refuse(of_source, "goes with SOURCE only")
        import_command_lines(lines.command, lines.server or (), lines.hardware, out)
        return
    _refuse({"server": lines.server}, "goes without SOURCE")
    source = sources[0]
    format_ = from_ or recognise(source)
    of_server = from_ is None and lines.hardware is not None and is_server_log(source)
    if of_server and format_ != SERVER_LOG:
        format_ = SERVER_LOG
        if lines.command is None and of_log.results is None and len(sources) == 1:
            # The log has requests, too: they are its traffic.
            of_log = replace(of_log, results=source)
    if format_ == SERVER_LOG:
        _refuse({"template": template}, "does not go with a server's log")
        _import_log(sources, lines, of_log, read, out)
        return
    if len(sources) > 1:
        raise InputError(f"{sources[1]}: several files must be those of one server's log")
    _refuse(asdict(lines), "goes without SOURCE, or with a server's log")
    _refuse(asdict(of_log), "goes with a server's log only")
    if format_ == INFERENCEX.name:
        from sim.commands.import_inferencex import import_inferencex

        unused: dict[str, object] = {"template": template, "draw_arrivals": draw_arrivals}
        _refuse(unused, "does not go with results of InferenceX")
        import_inferencex(source, line, out)
        return
    _import_results(source, format_, read, out, template)


def _import_log(
    sources: list[Path], lines: CommandLines, of_log: OfServerLog, read: "ReadOptions", out: Path
) -> None:
    """Write the scenario of the server that wrote a log."""
    from sim.commands.import_server_log import LogOptions, import_server_log

    if of_log.results is None:
        _refuse(read._asdict(), "goes with --results only")
    options = LogOptions(lines.hardware, of_log.model, lines.command, of_log.results, read)
    import_server_log(sources, options, out, is_fleet=of_log.fleet)


def _refuse(options: dict[str, object], reason: str) -> None:
    """Check that none of these options is given."""
    for name, value in options.items():
        if value is not False and value not in (None, []):
            raise InputError(f"--{name.replace('_', '-')}: {reason}")


def _import_results(
    source: Path, format_: str | None, options: "ReadOptions", out: Path, template: Path | None
) -> None:
    """Write the folder of workload, measured run and scenario, and print what was measured."""
    from sim.commands import import_results as results
    from sim.commands.output import check_folder, print_line
    from sim.commands.recorded_scenario import compose_scenario
    from sim.core.errors import say

    check_folder(out, source)
    if source.resolve() == out.resolve():
        raise InputError(f"--out {out}: is the folder that is imported: give another")
    read = results.read_source(source, format_, options)
    composed = compose_scenario(
        read.facts, read.requests, source=source, out=out, template=template
    )
    results.write_import(out, read.requests, composed.text)
    stats = results.read_back(out, max(results.MIN_BLOCK, composed.page_size))
    for row in results.import_table(read.format, read.requests, stats):
        print_line(row)
    for note in (*read.notes, *composed.notes):
        say(f"servetwin: {' '.join(note.split())}")
    print_line("")
    print_line(f"next: simulate run {out / results.SCENARIO}")
    print_line(f"      calibrate validate {out / results.SCENARIO} {out / results.MEASURED}")

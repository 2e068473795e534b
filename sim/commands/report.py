"""`simulate report`, `timeline` and `compare`: what runs have written, drawn or compared."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from sim.command_line import Set, command, file_option, out_option
from sim.core.errors import InputError

if TYPE_CHECKING:
    from sim.metrics.registry import Metric
    from sim.report.timeline import ServerActivity


_TITLE = (
    "Metrics of the report section (a prefix hot., cold., tenants.NAME. or pools.NAME. selects"
    " requests)"
)


class _Help(TyperCommand):
    """A command whose help ends with every metric: its definition and its unit."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        with formatter.section(_TITLE):
            formatter.write_dl(list(_metric_rows()))


def _metric_rows() -> Iterator[tuple[str, str]]:
    """The statistics of a latency share a row."""
    # Only this help needs them.
    from sim.metrics.registry import LATENCIES, PHASES, POOL_METRICS, RUN_METRICS

    shown = set()
    for latency in (*LATENCIES.values(), *PHASES.values()):
        shown |= {f"{name}_{latency.name}_ms" for name in latency.statistics}
        statistics = f"{', '.join(latency.statistics)} over {latency.samples} [ms]"
        definition = f"{latency.label}: {latency.definition}; {statistics}"
        yield f"STATISTIC_{latency.name}_ms", definition
    for known in RUN_METRICS.values():
        if known.name not in shown:
            yield _row(known.name, known)
    for name, known in POOL_METRICS.items():
        if name not in RUN_METRICS:
            yield _row(f"pools.NAME.{name}", known)


def _row(name: str, known: "Metric") -> tuple[str, str]:
    return name, f"{known.definition}{f' [{known.unit}]' if known.unit else ''}"


@command(cls=_Help)
def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="folder of a finished run, sweep, tune or plan")
    ],
    out: Annotated[
        Path | None, out_option("folder for page and pictures; default: DIR/report")
    ] = None,
) -> None:
    """Draw a finished run, sweep, tune or plan: pictures, and a page with everything in it."""
    from sim.commands.output import print_line
    from sim.report.page import folder_page, write_report

    for path in write_report(folder_page(folder), out or folder / "report"):
        print_line(str(path))


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
    from sim.report.timeline import timeline_page

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
    from sim.report.timeline import activity, within
    from sim.runlog.run_log_file import decision_lines

    servers = activity(decision_lines(log))
    if not begin_s < end_s:
        raise InputError(f"--end {end_s:g}: must be above --begin, {begin_s:g}")
    try:
        return within(servers, round(begin_s * NS_PER_S), round(end_s * NS_PER_S))
    except InputError as error:
        raise InputError(f"{log}: {error}") from None


_SCENARIO_SUFFIXES = (".yaml", ".yml")


@command(user_code=True)
def compare(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="decision log")],
    other: Annotated[
        Path, typer.Argument(metavar="OTHER", help="decision log, or scenario (YAML) to replay on")
    ],
    set_: Set = None,
) -> None:
    """Find the first step at which two logs, or a log and a scenario, differ."""
    from sim.commands.output import print_line
    from sim.commands.running.replay_log import differing_fields, replay_log
    from sim.runlog.run_log_file import first_difference, read_decisions

    steps, requests = read_decisions(log)
    if other.suffix in _SCENARIO_SUFFIXES:
        divergence = replay_log(log, steps, requests, other, set_ or ())
        how = "decided the same again"
    elif set_:
        raise InputError(f"--set {set_[0]}: {other} is a log, not a scenario")
    else:
        divergence = first_difference(steps, read_decisions(other)[0], differing_fields)
        how = "the same"
    print_line(str(divergence) if divergence else f"all {len(steps):,} steps are {how}")

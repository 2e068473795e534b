"""`simulate timeline`: a log as a page to zoom into, and as a trace for Perfetto."""

from dataclasses import dataclass
from pathlib import Path

from sim.commands.output import print_line
from sim.core.atomic import check_target
from sim.core.errors import InputError
from sim.core.files import write_text
from sim.core.inputs import refuse_input
from sim.core.stdin import name_of
from sim.core.units import NS_PER_S
from sim.report.activity import activity, within
from sim.report.perfetto_activity import write_activity
from sim.report.timeline_page import timeline_page
from sim.runlog.read_decisions import decision_lines

_FOREVER_S = 2.0**30


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineOptions:
    """What to write of a log.

    Attributes:
        out: the page; None: `LOG.html` in the current folder.
        perfetto: a trace for ui.perfetto.dev; None: none.
        begin_s, end_s: the part of the log; None: from its begin, to its end.
    """

    out: Path | None = None
    perfetto: Path | None = None
    begin_s: float | None = None
    end_s: float | None = None


def write_timeline_page(log: Path, out: Path, name: str) -> None:
    """Write the page of a whole log.

    Raises:
        InputError: the log cannot be read, or the page cannot be written.
    """
    write_text(out, timeline_page(name, activity(decision_lines(log))))


def write_timelines(log: Path, options: TimelineOptions) -> None:
    """Write the page of a log; print the paths of what was written.

    Raises:
        InputError: the log cannot be read, nothing happens in the part that is asked for, or a file
            cannot be written.
    """
    name = name_of(log).removesuffix(".jsonl")
    page = Path(f"{name}.html") if options.out is None else options.out
    targets = [page] if options.perfetto is None else [page, options.perfetto]
    if len({path.resolve() for path in targets}) < len(targets):
        raise InputError(f"--perfetto {options.perfetto}: is the file of --out already")
    for path in targets:
        check_target(path)
    servers = activity(decision_lines(log))
    begin_s = 0.0 if options.begin_s is None else options.begin_s
    end_s = _FOREVER_S if options.end_s is None else options.end_s
    if not begin_s < end_s:
        raise InputError(f"--end {end_s:g}: must be above --begin, {begin_s:g}")
    try:
        servers = within(servers, round(begin_s * NS_PER_S), round(end_s * NS_PER_S))
    except InputError as error:
        raise InputError(f"{log}: {error}") from None
    for path in targets:
        refuse_input(path)
    write_text(page, timeline_page(name, servers))
    if options.perfetto is not None:
        write_activity(name, servers, options.perfetto)
    for path in targets:
        print_line(str(path))

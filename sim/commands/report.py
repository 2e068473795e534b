"""`simulate report`: pictures and a page of a finished run, sweep or search. It runs nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from sim.command_line.command import command, out_option

if TYPE_CHECKING:
    from sim.metrics.registry import Metric

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
        Path, typer.Argument(metavar="DIR", help="folder of a finished run, sweep or tune")
    ],
    out: Annotated[
        Path | None, out_option("folder for page and pictures; default: DIR/report")
    ] = None,
) -> None:
    """Draw a finished run, sweep or tune: pictures, and a page with everything in it."""
    from sim.commands.output import print_line
    from sim.report.folder_page import folder_page
    from sim.report.page import write_report

    for path in write_report(folder_page(folder), out or folder / "report"):
        print_line(str(path))

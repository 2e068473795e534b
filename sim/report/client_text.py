"""A run as a benchmark's client prints it."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from sim.metrics.summary import Summary
from sim.report.confidence_text import confidence_lines, kv_pool_lines
from sim.tables.table import Column, Table, number_as

_WIDTH, _LABEL = 50, 40


def client_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The lines, with a first one that names the program.

    `found` are the `client_figures` of a summary.
    """
    program, figures = found["program"], found["figures"]
    yield f"What {program} prints of it:"
    if all("avg" in row for row in figures.values()):
        names = list(next(iter(figures.values())))
        cell = partial(number_as, ",.2f")
        columns = [Column("Metric", is_text=True), *(Column(name, to_text=cell) for name in names)]
        rows = [[label, *(row.get(name) for name in names)] for label, row in figures.items()]
        yield from Table(columns, rows).lines()
        return
    for place, (heading, lines) in enumerate(figures.items()):
        yield f" {heading} ".center(_WIDTH, "=") if not place else heading.center(_WIDTH, "-")
        for label, value in lines.items():
            text = str(value) if isinstance(value, int) else number_as(".2f", value)
            yield f"{label + ':':<{_LABEL}} {text}"
    yield "=" * _WIDTH


def bench_text(summary: Summary, num_gpus: int) -> str:
    """What the client of a summary prints, with throughput by user and GPU, and what it rests on.

    A user's tokens/s are those of the mean TPOT, as InferenceX counts them.
    """
    found, tpot_ms = summary["client_figures"], summary["mean_tpot_ms"]
    output, total = summary["output_throughput"], summary["total_throughput"]
    shares = {
        "Output tok/s per user (1 / mean TPOT)": 1e3 / tpot_ms if tpot_ms else None,
        "Output tok/s per GPU": None if output is None else output / num_gpus,
        "Total tok/s per GPU": None if total is None else total / num_gpus,
        "GPUs": num_gpus,
    }
    figures = {**found["figures"], "Users and GPUs": shares}
    _, *lines = client_lines({**found, "figures": figures})
    if summary["saturated"]:
        lines.append("saturated: requests come faster than they are served, so TTFT keeps growing")
    return "\n".join([*lines, *kv_pool_lines(summary), *confidence_lines(summary["confidence"])])

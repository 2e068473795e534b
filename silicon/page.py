"""Writes the scoreboards of docs/hardware.md and their picture, and tables of other pages."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isnan
from pathlib import Path

import numpy as np

from bench.page import replaced
from silicon.disaggregated import servers_in_words
from silicon.facts import Row
from silicon.scores import QUANTITIES, Judged, errors, grouped, judged, tau
from silicon.simulate import RowOutcome
from sim.core.files import atomic_path
from sim.report.figures.marks import PALETTE
from sim.report.figures.render import new_figure, save_figure, styled

PAGE = Path(__file__).parent.parent / "docs" / "hardware.md"
DISAGGREGATED = PAGE.with_name("hardware-disaggregated.md")
ACCURACY = PAGE.parent / "explanation" / "accuracy.md"
_PICTURES = PAGE.parent / "images"
_SPLITS = ("development", "held-out")


def write_page(rows: Mapping[str, Row], outcomes: Mapping[str, RowOutcome]) -> None:
    """Put the scoreboard into the page, and draw its picture.

    Raises:
        InputError: the page has no place for the scoreboard.
    """
    population = [row for row in rows.values() if row.is_judged]
    points = judged(population, outcomes)
    write_board("scoreboard", "\n\n".join(_sections(_GROUPINGS, population, points, outcomes)))
    _draw(points)


def write_disaggregated(rows: Mapping[str, Row], outcomes: Mapping[str, RowOutcome]) -> None:
    """Put the scoreboard of rows with disaggregated prefill and decode into their page.

    Raises:
        InputError: the page has no place for it.
    """
    population = [row for row in rows.values() if row.is_disaggregated_without_drafts]
    points = judged(population, outcomes)
    write_board(
        "disaggregated",
        "\n\n".join(_sections(_GROUPINGS_DISAGGREGATED, population, points, outcomes)),
        DISAGGREGATED,
    )


def write_board(name: str, board: str, page: Path | None = None) -> None:
    """Put a table between the marks of this name, in docs/hardware.md or another page.

    Raises:
        InputError: the page has no such marks.
    """
    page = page or PAGE
    text = replaced(page.read_text(encoding="utf-8"), name, board, page)
    with atomic_path(page) as beside:
        beside.write_text(text, encoding="utf-8")


_Groupings = Mapping[str, Callable[[Row], str]]


def _sections(
    groupings: _Groupings,
    population: Sequence[Row],
    points: Sequence[Judged],
    outcomes: Mapping[str, RowOutcome],
) -> Iterator[str]:
    for split in _SPLITS:
        rows = [row for row in population if row["split"] == split]
        found = [point for point in points if point.row["split"] == split]
        yield f"### {split.capitalize()} half: {len(found):,} of {len(rows):,} rows"
        for title, key in groupings.items():
            yield _table(title, rows, grouped(found, key), key)
        yield _all_line(found)
    yield "### Rows that were not simulated"
    if len(points) == len(population):
        yield "None."
        return
    reasons = Counter(
        outcomes[row.id].reason if row.id in outcomes else "not run yet"
        for row in population
        if row.id not in outcomes or outcomes[row.id].status != "ok"
    )
    yield table_of(("rows", "reason"), [(f"{count}", reason) for reason, count in _sorted(reasons)])


_GROUPINGS: _Groupings = {
    "engine and architecture": lambda row: f"{row['backend']}, {row['arch_class']}",
    "engine and precision": lambda row: f"{row['backend']}, {row['precision'] or 'bf16 or fp8'}",
}
_GROUPINGS_DISAGGREGATED: _Groupings = {
    "engine, GPU and precision": lambda row: (
        f"{row['backend']}, {row['system']}, {row['precision']}"
    ),
    "prefill servers": lambda row: servers_in_words(row, "prefill"),
    "decode servers": lambda row: servers_in_words(row, "decode"),
}


def _table(
    title: str,
    rows: Sequence[Row],
    groups: Mapping[str, Sequence[Judged]],
    key: Callable[[Row], str],
) -> str:
    num_rows = Counter(key(row) for row in rows)
    header = [title, "rows", "TTFT", "TPOT", "throughput", "tau TTFT, TPOT"]
    has_package = any(point.package is not None for found in groups.values() for point in found)
    if has_package:
        header.append("package TTFT, TPOT")
    lines = []
    for name in sorted(num_rows):
        points = groups.get(name, ())
        cells = [errors_cell(points, quantity) for quantity in QUANTITIES]
        taus = ", ".join(_number(tau(points, quantity)) for quantity in QUANTITIES[:2])
        package = [
            f"{errors(points, quantity, of_package=True).median:.0%}" for quantity in QUANTITIES[:2]
        ]
        line = [name, f"{len(points)} of {num_rows[name]}", *cells, taus]
        lines.append([*line, ", ".join(package)] if has_package else line)
    return table_of(header, lines)


def _number(value: float) -> str:
    return "-" if isnan(value) else f"{value:.2f}"


def _all_line(points: Sequence[Judged]) -> str:
    parts = []
    for quantity in QUANTITIES[:2]:
        ours, theirs = errors(points, quantity), errors(points, quantity, of_package=True)
        package = "" if isnan(theirs.median) else f" (package {theirs.median:.1%})"
        parts.append(f"{quantity} {ours.median:.1%}{package}")
    return f"Median |error| of all rows: {', '.join(parts)}."


def errors_cell(points: Sequence[Judged], quantity: str) -> str:
    """Median, mean and 90th percentile of absolute errors, and the median of signed ones."""
    if not points:
        return "-"
    found = errors(points, quantity)
    return f"{found.median:.0%} / {found.mean:.0%} / {found.p90:.0%} ({found.bias:+.0%})"


def table_of(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _sorted(reasons: Counter[str | None]) -> list[tuple[str, int]]:
    named = [(reason or "", count) for reason, count in reasons.items()]
    return sorted(named, key=lambda item: (-item[1], item[0]))


@styled
def _draw(points: Sequence[Judged]) -> None:
    """Predicted over measured, and the error over concurrency, of the held-out half."""
    held_out = [point for point in points if point.row["split"] == "held-out"]
    figure = new_figure(1_200, 900)
    axes = figure.subplots(2, 2)
    for column, quantity in enumerate(("ttft_ms", "tpot_ms")):
        name = quantity.removesuffix("_ms").upper()
        for color, backend in zip(PALETTE, ("sglang", "vllm"), strict=False):
            chosen = [point for point in held_out if point.row["backend"] == backend]
            measured = np.array([getattr(point.measured, quantity) for point in chosen])
            simulated = np.array([getattr(point.simulated, quantity) for point in chosen])
            load = np.array([float(point.row["concurrency"]) for point in chosen])
            dots = {"s": 7, "color": color, "label": backend, "alpha": 0.6, "linewidths": 0}
            axes[0, column].scatter(measured, simulated, **dots)
            axes[1, column].scatter(load, simulated / measured, **dots)
        top, bottom = axes[:, column]
        low, high = top.get_xlim()
        top.plot([max(low, 1), high], [max(low, 1), high], color="grey", linewidth=1)
        top.set(xscale="log", yscale="log", xlabel=f"measured mean {name}, ms")
        top.set_ylabel(f"simulated mean {name}, ms")
        bottom.axhline(1, color="grey", linewidth=1)
        bottom.set(xscale="log", yscale="log", xlabel="concurrency")
        bottom.set_ylabel(f"simulated / measured {name}")
        top.legend()
    _PICTURES.mkdir(exist_ok=True)
    save_figure(figure, _PICTURES / "hardware.png")

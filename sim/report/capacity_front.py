"""The loads that a search for deployments tried, as a table: those that no other beats."""

from collections.abc import Iterator, Sequence
from typing import Any

from sim.metrics.points import MeanInterval
from sim.report.search_tables import percent
from sim.report.sweep_tables import interval_text
from sim.tables.table import Table, columns_of, number

MAX_FRONT = 10
_NUMBERS = ("tokens_per_user", "tokens_per_gpu")
_HEADINGS = ("tokens/s for each user", "tokens/s of each GPU")


def front_rows(loads: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The loads on the front, the most tokens/s for each user first."""
    front = [row for row in loads if row["on_front"]]
    return sorted(front, key=lambda row: -(row["tokens_per_user"] or 0.0))


def short_deployments(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """By the deployments of these rows, each without the words that all of them have."""
    common = _common(rows)
    return {
        row["deployment"]: ", ".join(
            word for word in row["deployment"].split(", ") if word not in common
        )
        for row in rows
    }


def _common(rows: Sequence[dict[str, Any]]) -> dict[str, None]:
    """The words that all deployments have, in their order; none if there is only one."""
    names = list(dict.fromkeys(row["deployment"] for row in rows))
    if len(names) < 2:
        return {}
    others = [set(name.split(", ")) for name in names[1:]]
    words = names[0].split(", ")
    return dict.fromkeys(word for word in words if all(word in each for each in others))


def front_lines(loads: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The line above the table; none if there is no front."""
    num_front = len(front_rows(loads))
    if not num_front:
        return
    common = ", ".join(_common(_spread(front_rows(loads))))
    more = f"; {num_front - MAX_FRONT:,} more in front.csv" if num_front > MAX_FRONT else ""
    yield (
        "Not beaten on tokens/s for each user (1 / mean TPOT) and of each GPU, of"
        f" {len(loads):,} deployments and loads tried{more}{common and f'; all {common}'}:"
    )


def loads_table(loads: Sequence[dict[str, Any]]) -> Table:
    """The front, spread over at most `MAX_FRONT` rows."""
    rows = _spread(front_rows(loads))
    names = short_deployments(rows)
    has_interval = [any(row[f"{name}_low"] is not None for row in rows) for name in _NUMBERS]
    unit = rows[0]["load_unit"] if rows else ""
    headings = [
        heading
        for text, shown in zip(_HEADINGS, has_interval, strict=True)
        for heading in (text, *(["90 % interval"] if shown else []))
    ]
    cells = [
        [
            names[row["deployment"]],
            row["servers"],
            str(row["num_gpus"]),
            number(row["load"]),
            *(
                text
                for name, shown in zip(_NUMBERS, has_interval, strict=True)
                for text in (_mean(row, name), *([_ends(row, name)] if shown else []))
            ),
            percent(row["slo_attainment"]),
            str(row["num_seeds"]),
        ]
        for row in rows
    ]
    columns = [
        *columns_of(["deployment"]),
        *columns_of(numbers=["servers", "GPUs", unit, *headings, "SLO met %", "seeds"]),
    ]
    return Table(columns, cells)


def _spread(rows: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """The rows, or of many those that are evenly spread among them, both ends included."""
    if len(rows) <= MAX_FRONT:
        return rows
    last = len(rows) - 1
    return [rows[round(place * last / (MAX_FRONT - 1))] for place in range(MAX_FRONT)]


def _mean(row: dict[str, Any], name: str) -> str:
    mean, half = row[name], row[f"{name}_half_width"]
    return interval_text(MeanInterval(mean, half, row["num_seeds"]))


def _ends(row: dict[str, Any], name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return "" if low is None else f"{number(low)} to {number(high)}"

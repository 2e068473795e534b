"""Saves results as JSON in out/bench, and all of them together as Markdown tables."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.machine import describe_machine, machine_line
from bench.places import OUT
from sim.core.files import atomic_path

TABLES = "performance-tables.md"
# In the order of the page. Each part is saved by one program: bench.peers, ...
PARTS = ("peers", "limit", "launches", "scaling", "agreement")


def save(part: str, tables: Sequence[str], figures: object, *, folder: Path = OUT) -> Path:
    """Save a program's figures and tables, and write a page with all tables. Returns its path.

    Raises:
        InputError: a file cannot be written.
    """
    content = {"machine": describe_machine(), "tables": list(tables), "figures": figures}
    with atomic_path(folder / f"{part}.json") as beside:
        beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    page = folder / TABLES
    with atomic_path(page) as beside:
        beside.write_text("\n\n".join(sections(PARTS, folder)) + "\n", encoding="utf-8")
    return page


def sections(parts: Iterable[str], folder: Path) -> Iterable[str]:
    """The tables of the parts that were measured. A line names the machine when it changes."""
    last_machine = ""
    for part in parts:
        path = folder / f"{part}.json"
        if not path.exists():
            continue
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        machine = machine_line(content["machine"])
        if machine != last_machine:
            yield f"Measured on: {machine}."
            last_machine = machine
        yield from content["tables"]


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    alignment = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, alignment, *rows))

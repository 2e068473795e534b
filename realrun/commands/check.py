"""`realrun check`: compares the logits of the paged runner with plain transformers'."""

import json
from dataclasses import asdict

from realrun.check.comparison import Comparison
from realrun.check.run_checks import run_checks
from realrun.fingerprint import fingerprint
from realrun.warm_runner import RunnerOptions, load_with_options
from sim.commands.output import print_line, print_table
from sim.tables.table import Table, columns_of
from sim.tables.text import number_as


def check(name_or_path: str, *, options: RunnerOptions, page_size: int, as_json: bool) -> bool:
    """Make all comparisons and print a row for each; returns whether all agree.

    Args:
        name_or_path: a packaged model (with random weights), or a checkpoint's folder.
        options: device, dtype and attention backend.
        page_size: tokens of a page.
        as_json: print JSON instead of a table.

    Raises:
        InputError: there is no such model or device, or the backend does not support the model.
    """
    model = load_with_options(name_or_path, options)
    comparisons = list(run_checks(model, page_size=page_size, attention=options.attention))
    agrees = all(comparison.ok for comparison in comparisons)
    if as_json:
        where = fingerprint(model, options.attention)
        rows = [_row(comparison) for comparison in comparisons]
        print_line(json.dumps({"ok": agrees, "page_size": page_size} | where | {"checks": rows}))
    else:
        print_table(_table(comparisons))
    return agrees


def _row(comparison: Comparison) -> dict[str, object]:
    """A comparison for JSON; `ok` is null if it was not made."""
    made = comparison.error is not None
    return asdict(comparison) | {"ok": comparison.ok if made else None}


def _table(comparisons: list[Comparison]) -> Table:
    rows = [
        (comparison.name, number_as(".2e", comparison.error), f"{comparison.tolerance:.2e}",
         _verdict(comparison), comparison.note)
        for comparison in comparisons
    ]  # fmt: skip
    return Table(columns_of(("check",), ("max abs error", "tolerance"), ("", "")), rows)


def _verdict(comparison: Comparison) -> str:
    if comparison.error is None:
        return "-"
    return "ok" if comparison.ok else "FAIL"

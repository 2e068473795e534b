"""`realrun check`: compares the logits of the paged runner with plain transformers'."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from realrun.commands.options import (
    AttentionChoice,
    AttentionOption,
    Device,
    DType,
    Model,
    PageSize,
)
from sim.command_line import OutputFormat, command, format_option

if TYPE_CHECKING:
    from realrun.check.comparison import LogitComparison
    from sim.tables.table import Table


@command()
def check(
    *,
    model: Model = "tiny",
    device: Device = "auto",
    dtype: DType = "auto",
    attention: AttentionOption = AttentionChoice.AUTO,
    page_size: PageSize = 16,
    seed: Annotated[int, typer.Option(help="seed of random weights")] = 0,
    format_: Annotated[OutputFormat, format_option("comparisons")] = OutputFormat.TABLE,
) -> int:
    """Compare paged logits with plain transformers'; exit code 1 if any differ too much."""
    from realrun.check.run_checks import run_checks
    from realrun.model.fingerprint import fingerprint
    from realrun.runner.warm_runner import RunnerOptions, load_with_options
    from sim.commands.output import print_line, print_table

    options = RunnerOptions(device=device, dtype=dtype, attention=attention.value, seed=seed)
    loaded = load_with_options(model, options)
    comparisons = list(run_checks(loaded, page_size=page_size, attention=options.attention))
    agrees = all(comparison.ok for comparison in comparisons)
    if format_ is OutputFormat.JSON:
        where = fingerprint(loaded, options.attention)
        rows = [_row(comparison) for comparison in comparisons]
        print_line(json.dumps({"ok": agrees, "page_size": page_size} | where | {"checks": rows}))
    else:
        print_table(_table(comparisons))
    return 0 if agrees else 1


def _row(comparison: "LogitComparison") -> dict[str, object]:
    """A comparison for JSON; `ok` is null if it was not made."""
    made = comparison.error is not None
    return asdict(comparison) | {"ok": comparison.ok if made else None}


def _table(comparisons: "list[LogitComparison]") -> "Table":
    from sim.tables.table import Table, columns_of, number_as

    rows = [
        (comparison.name, number_as(".2e", comparison.error), f"{comparison.tolerance:.2e}",
         _verdict(comparison), comparison.note)
        for comparison in comparisons
    ]  # fmt: skip
    return Table(columns_of(("check",), ("max abs error", "tolerance"), ("", "")), rows)


def _verdict(comparison: "LogitComparison") -> str:
    if comparison.error is None:
        return "-"
    return "ok" if comparison.ok else "FAIL"

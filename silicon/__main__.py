"""Simulates rows of the silicon table.

python -m silicon [--rows FILE] [--disaggregated] [--out FILE] [--page]
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from silicon import disaggregated_drafts
from silicon.facts import Row, load_rows
from silicon.page import DISAGGREGATED, write_board, write_disaggregated, write_page
from silicon.simulate import RowOutcome, kept_outcomes, simulate_rows
from sim.core.errors import InputError

_OUT = Path("build/silicon.jsonl")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m silicon", description=__doc__)
    parser.add_argument("--rows", type=Path, help="ids, one a line; without it: all judged rows")
    parser.add_argument(
        "--disaggregated",
        action="store_true",
        help="the rows with disaggregated prefill and decode",
    )
    parser.add_argument("--out", type=Path, default=_OUT, help=f"JSON lines; default {_OUT}")
    parser.add_argument("--page", action="store_true", help="write the tables of docs")
    arguments = parser.parse_args()
    try:
        table = load_rows()
        wanted = _wanted(table, arguments.rows, disaggregated=arguments.disaggregated)
        outcomes = _simulate(wanted, arguments.out)
        if arguments.page:
            if arguments.disaggregated:
                write_disaggregated(table, outcomes)
                write_board(
                    "disaggregated-drafts",
                    disaggregated_drafts.board(list(table.values()), outcomes),
                    DISAGGREGATED,
                )
            else:
                write_page(table, outcomes)
    except InputError as error:
        sys.stderr.write(f"silicon: {error}\n")
        sys.exit(2)


def _wanted(table: dict[str, Row], file: Path | None, *, disaggregated: bool) -> list[Row]:
    """The rows to simulate, by configuration: a process then keeps its operator times."""
    if file is None:
        rows = [row for row in table.values() if row.is_judged and not disaggregated]
        if disaggregated:
            known = [row for row in table.values() if row.is_disaggregated]
            rows = [case for row in known for case in disaggregated_drafts.cases(row)]
        return sorted(rows, key=lambda row: (row["model"], row["system"], row["tp"], row.id))
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: cannot be read: {error}") from None
    rows = []
    for number, line in enumerate(lines, start=1):
        if not (name := line.strip()):
            continue
        if name not in table:
            raise InputError(f"{file}:{number}: {name}: no SGLang or vLLM row has this id")
        rows.append(table[name])
    return rows


def _simulate(rows: Sequence[Row], out: Path) -> dict[str, RowOutcome]:
    """Simulate the rows that the file lacks; add a line to it for each."""
    outcomes = kept_outcomes(out)
    missing = [row for row in rows if row.id not in outcomes]
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a", encoding="utf-8") as file:
        for outcome in simulate_rows(missing, os.cpu_count() or 1):
            outcomes[outcome.id] = outcome
            file.write(json.dumps(outcome.as_dict()) + "\n")
            file.flush()
    return {row.id: outcomes[row.id] for row in rows}


if __name__ == "__main__":
    main()

"""Judges the rows whose servers speculated: `python -m silicon.speculation [--fit] [--page]`.

How many draft tokens were accepted is in no published file of these runs. One mean acceptance
length for each model is fitted to development rows (`--fit` prints it); all else is as for the
other rows. So the level of TPOT is fitted, and what the held-out half tests is how it changes with
load and lengths.
"""

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence

from scipy.optimize import minimize_scalar

from silicon.facts import Row, load_rows
from silicon.page import errors_cell, table_of, write_board
from silicon.scenario import ACCEPTED, accepted_key
from silicon.scores import QUANTITIES, judged
from silicon.simulate import RowOutcome, simulate_row
from sim.core.errors import InputError

# Measured by InferenceX with vLLM on coding prompts, for the same model in 4 bits
# (golden_al_distribution/qwen3.5_mtp.yaml, thinking on).
PUBLISHED: Mapping[str, float] = {"Qwen/Qwen3.5-397B-A17B 3": 3.39}
# Above this many output tokens under way a row takes long to simulate.
_MAX_LOAD = 64 * 1024
_TOLERANCE = 0.01


def fit(key: str, rows: Sequence[Row]) -> float:
    """The mean acceptance length with the smallest mean error of log TPOT."""
    sample = [
        row
        for row in rows
        if row["split"] == "development"
        and (row.number("concurrency") or 0) * (row.number("osl") or 0) <= _MAX_LOAD
    ]

    def error(length: float) -> float:
        means = [_simulated(row, length).tpot_ms or math.inf for row in sample]
        pairs = zip(sample, means, strict=True)
        return sum(abs(math.log(mean / row.tpot_ms)) for row, mean in pairs) / len(sample)

    found = minimize_scalar(
        error, bounds=(1, 1 + rows[0].drafts), method="bounded", options={"xatol": _TOLERANCE}
    )
    sys.stderr.write(f"{key}: {found.x:.2f} with {len(sample)} rows, error {found.fun:.3f}\n")
    return float(round(found.x, 2))


def _simulated(row: Row, length: float) -> RowOutcome:
    return simulate_row(row, overrides=(f"acceptance.mean_length={length:.6f}",))


def by_key(table: Mapping[str, Row]) -> dict[str, list[Row]]:
    """The rows whose servers speculated, by model and number of drafts."""
    groups: dict[str, list[Row]] = {}
    for row in sorted(table.values(), key=lambda row: row.id):
        if row.drafts:
            groups.setdefault(accepted_key(row), []).append(row)
    return dict(sorted(groups.items()))


def board(groups: Mapping[str, Sequence[Row]]) -> str:
    """The table of errors, by model, acceptance length, GPU and half."""
    header = ("model, drafts", "acceptance length", "GPU", "half", "rows", *QUANTITIES)
    return table_of(header, [line for key, rows in groups.items() for line in _lines(key, rows)])


def _lines(key: str, rows: Sequence[Row]) -> Iterator[Sequence[str]]:
    lengths = {f"{ACCEPTED[key]:g}": ACCEPTED[key]}
    if key in PUBLISHED:
        lengths[f"{PUBLISHED[key]:g}, published for other prompts"] = PUBLISHED[key]
    for text, length in lengths.items():
        outcomes = {row.id: _simulated(row, length) for row in rows}
        for system in sorted({row["system"] for row in rows}):
            for half in ("development", "held-out"):
                wanted = [r for r in rows if (r["system"], r["split"]) == (system, half)]
                if not wanted:
                    continue
                points = judged(wanted, outcomes)
                cells = [errors_cell(points, quantity) for quantity in QUANTITIES]
                yield key, text, system, half, f"{len(points)} of {len(wanted)}", *cells


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m silicon.speculation", description=__doc__)
    parser.add_argument("--fit", action="store_true", help="print the fitted acceptance lengths")
    parser.add_argument("--page", action="store_true", help="write its table")
    arguments = parser.parse_args()
    try:
        groups = by_key(load_rows())
        if arguments.fit:
            for key, rows in groups.items():
                fit(key, rows)
            return
        text = board({key: rows for key, rows in groups.items() if not rows[0].is_disaggregated})
        sys.stdout.write(text + "\n")
        if arguments.page:
            write_board("speculation", text)
    except InputError as error:
        sys.stderr.write(f"silicon.speculation: {error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()

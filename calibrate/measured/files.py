"""Writes the files of `calibrate validate SCENARIO MEASURED --out`. Loads matplotlib."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from calibrate.measured.compare import LATENCIES
from calibrate.measured.document import document
from calibrate.measured.over_time import SIZES, OverTime
from calibrate.measured.pairs import MeasuredPairs
from calibrate.measured.validate import MeasuredValidation
from calibrate.plots import Both, plot_distributions, plot_over_time, plot_requests
from sim.core.errors import InputError
from sim.core.files import json_text, make_folder, write_text
from sim.core.units import NS_PER_S
from sim.report.figures.render import save_picture
from sim.tables.table import Table, columns_of

_VALIDATION = "validation.json"
_REQUESTS, _REQUESTS_PICTURE, _DISTRIBUTIONS = "requests.csv", "requests.png", "distributions.png"
_OVER_TIME, _OVER_TIME_PICTURE = "over-time.csv", "over-time.png"
_ALL = (
    _VALIDATION, _REQUESTS, _REQUESTS_PICTURE, _DISTRIBUTIONS, _OVER_TIME, _OVER_TIME_PICTURE,
)  # fmt: skip
_MS_DIGITS = 6


def check_inputs_stay(folder: Path, inputs: Sequence[Path]) -> None:
    """Raises InputError if `write_validation` would overwrite one of these files."""
    written = {(folder / name).resolve() for name in _ALL}
    for path in inputs:
        if path.resolve() in written:
            raise InputError(f"{path}: would be overwritten: give another folder to --out")


def write_validation(validation: MeasuredValidation, folder: Path) -> list[Path]:
    """Write validation.json, and tables and pictures of the requests and of the sizes over time.

    The folder is made if its parent exists; other files in it are left alone.

    Returns:
        The paths of the files.

    Raises:
        InputError: a file cannot be written.
    """
    make_folder(folder)
    written = [folder / name for name in (_REQUESTS, _REQUESTS_PICTURE, _DISTRIBUTIONS)]
    _write_requests(validation.comparison.pairs, written[0])
    latencies = _latencies(validation.comparison.pairs)
    save_picture(plot_requests(latencies), written[1])
    save_picture(plot_distributions(latencies), written[2])
    if validation.over_time is not None:
        over_time = [folder / _OVER_TIME, folder / _OVER_TIME_PICTURE]
        _write_over_time(validation.over_time, over_time[0])
        sizes = _sizes(validation.over_time)
        save_picture(plot_over_time(validation.over_time.measured.t_s, sizes), over_time[1])
        written += over_time
    # Written last: if it exists, all other files do.
    written.append(folder / _VALIDATION)
    write_text(written[-1], json_text(document(validation)))
    return written


def _latencies(pairs: MeasuredPairs) -> dict[str, Both]:
    """Latencies (ms) of the requests for which both runs know them."""
    measured, simulated = pairs.measured.latencies_ms(), pairs.simulated.latencies_ms()
    found = {}
    for name, words in LATENCIES.items():
        known = ~np.isnan(measured[name]) & ~np.isnan(simulated[name])
        found[words] = Both(measured[name][known], simulated[name][known])
    return found


def _sizes(over_time: OverTime) -> dict[str, Both]:
    measured, simulated = over_time.measured, over_time.simulated
    return {name: Both(getattr(measured, name), getattr(simulated, name)) for name in SIZES}


def _write_requests(pairs: MeasuredPairs, path: Path) -> None:
    """One row for each compared request, by measured arrival; unknown values are empty."""
    runs = {"measured": pairs.measured, "simulated": pairs.simulated}
    columns: dict[str, Sequence[object]] = {
        "rid": pairs.rid,
        "arrival_s": (pairs.measured.arrival_ns / NS_PER_S).tolist(),
        "simulated_arrival_s": (pairs.simulated.arrival_ns / NS_PER_S).tolist(),
    }
    for name in ("prompt_tokens", "output_tokens"):
        for run, times in runs.items():
            columns[f"{run}_{name}"] = getattr(times, name).tolist()
    latencies_ms = {run: times.latencies_ms() for run, times in runs.items()}
    for name in LATENCIES:
        for run, of_run in latencies_ms.items():
            columns[f"{run}_{name}_ms"] = np.round(of_run[name], _MS_DIGITS).tolist()
    _write_csv(columns, path)


def _write_over_time(over_time: OverTime, path: Path) -> None:
    columns: dict[str, Sequence[object]] = {"t": over_time.measured.t_s.tolist()}
    for name, both in _sizes(over_time).items():
        columns[f"measured_{name}"] = both.measured.tolist()
        columns[f"simulated_{name}"] = both.simulated.tolist()
    _write_csv(columns, path)


def _write_csv(columns: Mapping[str, Sequence[object]], path: Path) -> None:
    Table(columns_of(numbers=columns), zip(*columns.values(), strict=True)).write_csv(path)

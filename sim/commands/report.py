"""`simulate report`: pictures and a page of a finished run or sweep. It runs nothing."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.commands.output import print_line
from sim.core.errors import InputError
from sim.report.figures.run import draw_run
from sim.report.files import SUMMARY
from sim.report.page import Page
from sim.report.report_files import page_figure, write_report
from sim.report.run_data import read_run
from sim.report.run_page import run_page
from sim.report.sweep_data import SweepData
from sim.report.sweep_files import RESULTS
from sim.report.sweep_page import sweep_page
from sim.report.sweep_plots import draw_report, report_section
from sim.report.sweep_results import DONE, PointResult
from sim.sweep.plan import SEED
from sim.sweep.store import POINTS, read_point

_ANEW = "simulate sweep with the same --out writes it anew"


def report(folder: Path, out: Path | None) -> None:
    """Draw what is in a folder; print the files written, one a line.

    Args:
        folder: of a run or of a sweep.
        out: where to write; None: `report` in it.

    Raises:
        InputError: the folder is not finished, or damaged; or nothing can be written.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: is no folder of a run or a sweep")
    if (folder / RESULTS).exists():
        page = _sweep_page(folder)
    elif (folder / SUMMARY).exists():
        page = _run_page(folder)
    else:
        raise InputError(
            f"{folder}: has neither {RESULTS} of a finished sweep nor {SUMMARY} of a finished run"
        )
    for path in write_report(page, folder / "report" if out is None else out):
        print_line(str(path))


def read_sweep(folder: Path) -> SweepData:
    """All of a finished sweep.

    Raises:
        InputError: a file is missing, damaged, or of an older version.
    """
    path = folder / RESULTS
    try:
        results = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise InputError(f"{path}: cannot be read: {reason} ({_ANEW})") from error
    needed = ("name", "keys", "scenario", "points", "point_files")
    missing = [key for key in needed if not isinstance(results, dict) or key not in results]
    if missing:
        raise InputError(f"{path}: has no {missing[0]}: of an older version ({_ANEW})")
    points = [
        _point(folder, row, file, results["keys"])
        for row, file in zip(results["points"], results["point_files"], strict=True)
    ]
    return SweepData.of(results["name"], results["scenario"], results["keys"], points)


def _point(folder: Path, row: Mapping[str, Any], file: str, keys: list[str]) -> PointResult:
    path = folder / POINTS / Path(file).name
    stored = read_point(path)
    if stored is None:
        what = "is damaged" if path.exists() else "is missing"
        raise InputError(f"{path}: {what} ({_ANEW})")
    values = {key: row.get(key) for key in (*keys, SEED)}
    summary = stored["summary"] if stored["status"] == DONE else None
    return PointResult(values, file, stored["status"], summary, stored["message"])


def _sweep_page(folder: Path) -> Page:
    data = read_sweep(folder)
    try:
        # Checked once more: the file may have been edited.
        section = report_section(data.scenario.get("report") or {}, data)
    except InputError as error:
        raise InputError(f"{folder / RESULTS}: {error} ({_ANEW})") from None
    figures = [
        page_figure(number, drawn) for number, drawn in enumerate(draw_report(data, section), 1)
    ]
    return sweep_page(data, section, figures)


def _run_page(folder: Path) -> Page:
    data = read_run(folder)
    figures = [page_figure(number, drawn) for number, drawn in enumerate(draw_run(data), start=1)]
    return run_page(data, figures)

"""The page of a finished run, sweep or search, from the files in its folder."""

from pathlib import Path

from sim.core.errors import InputError
from sim.report.figures.run import draw_run
from sim.report.figures.tune import draw_tune
from sim.report.page import Page
from sim.report.report_files import page_figure
from sim.report.run_data import read_run
from sim.report.run_folder import SUMMARY
from sim.report.run_page import run_page
from sim.report.sweep_page import sweep_page
from sim.report.sweep_plots import draw_report, report_section
from sim.report.tune_page import tune_page
from sim.sweep.result_files import RESULTS, REWRITE_HINT, read_results
from sim.sweep.tune_reader import is_tune_folder, read_tune_results


def folder_page(folder: Path) -> Page:
    """The page, with its pictures.

    Raises:
        InputError: the folder is not finished, or damaged.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: is no folder of a run, a sweep or a search")
    if (folder / RESULTS).exists():
        return _tune_page(folder) if is_tune_folder(folder) else _sweep_page(folder)
    if (folder / SUMMARY).exists():
        return _run_page(folder)
    raise InputError(
        f"{folder}: has neither {RESULTS} of a finished sweep nor {SUMMARY} of a finished run"
    )


def _sweep_page(folder: Path) -> Page:
    data = read_results(folder)
    try:
        # Check it again: the file may have been edited since the sweep.
        section = report_section(data.scenario.get("report") or {}, data)
    except InputError as error:
        raise InputError(f"{folder / RESULTS}: {error} ({REWRITE_HINT})") from None
    figures = [
        page_figure(number, drawn) for number, drawn in enumerate(draw_report(data, section), 1)
    ]
    return sweep_page(data, section, figures)


def _tune_page(folder: Path) -> Page:
    results, scenario = read_tune_results(folder)
    drawn = draw_tune(results, scenario)
    figures = [page_figure(number, each) for number, each in enumerate(drawn, start=1)]
    return tune_page(results, scenario, figures)


def _run_page(folder: Path) -> Page:
    data = read_run(folder)
    figures = [page_figure(number, drawn) for number, drawn in enumerate(draw_run(data), start=1)]
    return run_page(data, figures)

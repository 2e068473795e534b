"""`simulate report`: pictures and a page of a finished run, sweep or search. It runs nothing."""

from pathlib import Path

from sim.commands.output import print_line
from sim.core.errors import InputError
from sim.report.figures.run import draw_run
from sim.report.figures.tune import draw_tune
from sim.report.page import Page
from sim.report.report_files import page_figure, write_report
from sim.report.result_pages import run_page, sweep_page, tune_page
from sim.report.run_data import read_run
from sim.report.run_folder import SUMMARY
from sim.report.sweep_plots import draw_report, report_section
from sim.sweep.result_files import RESULTS, REWRITE_HINT, read_results
from sim.sweep.tune_reader import is_tune_folder, read_tune_results


def report(folder: Path, out: Path | None) -> None:
    """Draw the results in a folder; print the written files, one on each line.

    Args:
        folder: of a run, of a sweep, or of a search.
        out: where to write; None: the subfolder `report`.

    Raises:
        InputError: the folder is not finished, or damaged; or nothing can be written.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: is no folder of a run, a sweep or a search")
    if (folder / RESULTS).exists():
        page = _tune_page(folder) if is_tune_folder(folder) else _sweep_page(folder)
    elif (folder / SUMMARY).exists():
        page = _run_page(folder)
    else:
        raise InputError(
            f"{folder}: has neither {RESULTS} of a finished sweep nor {SUMMARY} of a finished run"
        )
    for path in write_report(page, folder / "report" if out is None else out):
        print_line(str(path))


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

"""`calibrate fit RESULTS... --out FOLDER`: a calibrated scenario from clients' time stamps."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from calibrate.coefficients.prepare import PrepareOptions, prepare
from calibrate.coefficients.report import (
    coefficient_table,
    document,
    error_table,
    speculation,
    trust_line,
    verdict,
)
from calibrate.coefficients.result_files import read_files, write_folder
from calibrate.coefficients.scenario import draft_text
from calibrate.coefficients.trust import fitted_section
from calibrate.measured.compare import RunComparison, compare
from sim.commands.import_results import SCENARIO
from sim.commands.output import check_folder, print_line, print_table
from sim.core.errors import InputError, say
from sim.scenario.load import load_scenario_text
from sim.workload.results.model import ReadOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOptions:
    """The options of the command line.

    Attributes:
        prepare: about the server.
        first: the fit sees this many requests of each file; None: half of them.
        format: of the results; None: recognised by their content.
        read: options of the reader.
    """

    prepare: PrepareOptions
    first: int | None
    format: str | None
    read: ReadOptions


def fit_results(paths: Sequence[Path], out: Path, options: FitOptions) -> None:
    """Fit, write the folder, and print how good the fit is.

    Raises:
        InputError: a file, an option or the folder is bad, or the results determine no coefficient.
            Nothing is written then.
    """
    for path in paths:
        check_folder(out, path)
        if path.resolve() == out.resolve():
            raise InputError(f"-o {out}: is a folder of results: give another")
    files = read_files(paths, first=options.first, format_=options.format, read=options.read)
    with TemporaryDirectory(prefix=".fit-", dir=out.parent) as folder:
        beside = Path(folder)
        prepared = prepare(files, options.prepare, beside=beside, out=out, say=_progress)
        fit = prepared.fit(_progress)
        parts: dict[str, RunComparison] = {}
        held_out = []
        logs = [run.simulate_all(fit.values) for run in prepared.runs]
        for run, log in zip(prepared.runs, logs, strict=True):
            of = "" if len(files) == 1 else f" of {run.name}"
            parts[f"seen{of}"] = compare(run.seen(log))
            held_out.append(compare(run.held_out(log)))
            parts[f"held out{of}"] = held_out[-1]
    remarks = [*map(str, fit.refused), *prepared.remarks, *speculation(files)]
    judged = list(verdict(fit, held_out))
    for key, value in fit.values.items():
        prepared.draft.set(key, value)
    first = files[0]
    comments = [f"Fitted to {fit.num_requests} requests; {judged[0]}.", *remarks]
    text = draft_text(prepared.draft, first.source, first.path, comments)
    # The settings as the file has them, with its digits.
    fitted = fitted_section(
        prepared.runs, logs, held_out, load_scenario_text(text, name=SCENARIO).raw
    )
    prepared.draft.data["fitted"] = fitted
    text = draft_text(prepared.draft, first.source, first.path, comments)
    write_folder(out, files, text, document(fit, parts, remarks))
    for file in files:
        for note in file.source.notes:
            _progress(f"{file.path.name}: {' '.join(note.split())}")
    print_table(coefficient_table(fit))
    for remark in remarks:
        print_line(remark)
    print_table(error_table(parts))
    for line in (*judged, trust_line(fitted)):
        print_line(line)
    print_line(f"next: simulate run {out / SCENARIO}")


def _progress(text: str) -> None:
    say(f"calibrate: {text}")

"""The files of a fit to results: those that are read, and the folder that is written."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrate.coefficients.runs import FitRun, limit_of
from calibrate.coefficients.stamps import check_stamps
from calibrate.measured.twin import Twin
from sim.commands.import_results import MEASURED, SCENARIO, WORKLOAD, ReadSource, read_source
from sim.core.errors import InputError
from sim.core.files import json_text, make_folder, remove_file, write_text
from sim.runlog.run_log_file import MeasuredRun, write_measured
from sim.scenario.load import LoadedScenario, vary
from sim.scenario.overrides import Change
from sim.workload.results.measured import measured_of, write_workload
from sim.workload.results.model import ReadOptions

FIT = "fit.json"
# Without --first, the fit sees the first half of each file, and no more requests than this.
_MOST_SEEN = 400


@dataclass(frozen=True, slots=True)
class ResultFile:
    """One file of results.

    Attributes:
        path: the file.
        name: what it is called: its name, or the whole path if other files have that name, too.
        source: its requests, and what it says about the server.
        measured: the requests' times.
        first: how many requests the fit sees: the first ones by arrival.
        workload_name, measured_name: files of the folder that is written.
    """

    path: Path
    name: str
    source: ReadSource
    measured: MeasuredRun
    first: int
    workload_name: str
    measured_name: str

    def write_into(self, folder: Path) -> None:
        write_workload(self.source.requests, folder / self.workload_name)
        write_measured(self.measured, folder / self.measured_name)

    def run(self, loaded: LoadedScenario, changes: Sequence[Change]) -> FitRun:
        """The run, simulated with a scenario and changed settings."""
        traffic = Change("workload.path", self.workload_name, "workload.path")
        twin = Twin(vary(loaded, [*changes, traffic]))
        limit = limit_of(self.measured, self.first)
        return FitRun(self.name, self.measured, twin, self.first, limit)


def read_files(
    paths: Sequence[Path], *, first: int | None, format_: str | None, read: ReadOptions
) -> list[ResultFile]:
    """Read all files.

    Raises:
        InputError: a file is bad, or has too few requests to hold any out.
    """
    is_clear = len({path.name for path in paths}) == len(paths)
    names = [path.name if is_clear else str(path) for path in paths]
    return [
        _read(path, name, f"-{number}" if number > 1 else "", first,
              read_source(path, format_, read))
        for number, (path, name) in enumerate(zip(paths, names, strict=True), 1)
    ]  # fmt: skip


def _read(path: Path, name: str, mark: str, first: int | None, source: ReadSource) -> ResultFile:
    num_requests = len(source.requests)
    seen = min(num_requests // 2, _MOST_SEEN) if first is None else first
    if not 0 < seen < num_requests:
        raise InputError(
            f"{path}: has {num_requests} requests: --first {seen} leaves none to judge the fit by"
        )
    workload, measured_name = (name.replace(".", f"{mark}.", 1) for name in (WORKLOAD, MEASURED))
    measured = measured_of(source.requests)
    columns = (measured.first_token_ns, measured.finish_ns, measured.output_tokens)
    check_stamps(str(path), *(column[:seen] for column in columns))
    return ResultFile(path, name, source, measured, seen, workload, measured_name)


def write_folder(
    out: Path, files: Sequence[ResultFile], scenario: str, fit: dict[str, Any]
) -> None:
    """Write the scenario last: if it exists, all files are complete and of the same fit."""
    make_folder(out)
    remove_file(out / SCENARIO)
    for file in files:
        file.write_into(out)
    write_text(out / FIT, json_text(fit))
    write_text(out / SCENARIO, scenario)

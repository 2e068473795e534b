"""Writes the files of `calibrate validate --out`. Loads matplotlib."""

import re
from pathlib import Path

from calibrate.plots import plot_step_times
from calibrate.validate import Case, Validation
from calibrate.validate_document import document
from sim.core.files import json_text, make_folder, remove_file, write_text
from sim.report.figures.render import save_picture
from sim.report.figures.run_logs import ttft_picture
from sim.runlog import RunLog


def write_validation(validation: Validation, folder: Path) -> list[Path]:
    """Write validation.json, steps.png and a ttft-SCENARIO.png for each case; returns the paths.

    The folder is made if its parent exists; other files in it are left alone.

    Raises:
        InputError: a file cannot be written.
    """
    make_folder(folder)
    last = folder / "validation.json"
    remove_file(last)
    times = {name: (s.measured_ns, s.predicted_ns) for name, s in validation.steps.items()}
    written = [folder / "steps.png"]
    save_picture(plot_step_times(times), written[0])
    for name, case in zip(_file_names(validation), validation.cases, strict=True):
        written.append(folder / f"ttft-{name}.png")
        save_picture(ttft_picture(ttft_curves(case)), written[-1])
    # If it exists, the pictures beside it are of the same call.
    write_text(last, json_text(document(validation)))
    return [*written, last]


def ttft_curves(case: Case) -> dict[str, RunLog]:
    """Curves of all real runs, and of simulations of the first one, as repeats differ little."""
    several = len(case.runs) > 1
    real = {
        f"real, run {number}" if several else "real": run.log
        for number, run in enumerate(case.runs, start=1)
    }
    recorded, profile = (case.simulated[stage][0].log for stage in ("recorded", "profile"))
    return {**real, "simulated, recorded steps": recorded, "simulated, profile": profile}


def _file_names(validation: Validation) -> list[str]:
    """The labels as parts of file names, made unique."""
    names: list[str] = []
    for case in validation.cases:
        name = re.sub(r"[^\w.=-]+", "-", case.label).strip("-")
        names.append(f"{name}-{len(names)}" if name in names else name)
    return names

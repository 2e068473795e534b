"""Writes the files of `calibrate explain --out`. Loads matplotlib."""

from pathlib import Path

from calibrate.explain.causes import Explanation
from calibrate.explain.picture import picture
from calibrate.explain.report import document
from sim.core.files import json_text, make_folder, remove_file, write_text
from sim.report.figures.render import save_picture


def write_explanation(explanation: Explanation, folder: Path) -> None:
    """Write causes.png and explanation.json; the folder is made if its parent exists.

    Raises:
        InputError: a file cannot be written.
    """
    make_folder(folder)
    last = folder / "explanation.json"
    remove_file(last)
    save_picture(picture(explanation), folder / "causes.png")
    # If it exists, the picture beside it is of the same call.
    write_text(last, json_text(document(explanation)))

"""The notebooks run from a clean checkout, and have the small outputs that readers see."""

import json
import re
from base64 import b64decode

import nbformat
import pytest

from reference.notebooks import REPOSITORY, executed, notebook_paths

PATHS = notebook_paths()
# Fits of measured times: their last digits are the machine's.
ROUNDED = "02_calibration.ipynb"
by_name = pytest.mark.parametrize("path", PATHS, ids=[path.name for path in PATHS])


def outputs(notebook):
    """What each cell of code shows: kinds and texts."""
    shown = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            data = dict(output.get("data", {}))
            data.pop("image/png", None)
            shown.append((sorted(output.get("data", {})), output.get("text", ""), data))
    return shown


def masked(shown, path):
    text = json.dumps(shown, sort_keys=True)
    return re.sub(r"[-+0-9. ─]+", "#", text) if path.name == ROUNDED else text


@pytest.mark.filterwarnings("ignore")  # of the kernel's libraries
@by_name
def test_notebook_shows_what_a_run_of_it_shows(path):
    """`make notebooks` writes them anew. Its widget draws, or its cell had no picture."""
    kept = nbformat.read(path, as_version=4)
    assert masked(outputs(executed(path)), path) == masked(outputs(kept), path)


@by_name
def test_kept_outputs_are_there_and_small(path):
    text = path.read_text(encoding="utf-8")
    assert len(text) < 250_000
    assert str(REPOSITORY) not in text
    cells = [cell for cell in nbformat.reads(text, as_version=4).cells if cell.cell_type == "code"]
    shown = [output for cell in cells for output in cell.outputs]
    pictures = [
        output.data["image/png"] for output in shown if "image/png" in output.get("data", {})
    ]
    assert len(pictures) >= 2
    assert all(b64decode(picture).startswith(b"\x89PNG") for picture in pictures)
    assert max(map(len, pictures)) < 90_000
    # The first cell of code may only import.
    assert all(cell.outputs for cell in cells[1:])
    assert not [output for output in shown if output.output_type == "error"]
    assert "widget-view" not in text

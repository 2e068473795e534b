"""The notebooks run from a clean checkout, and have the small outputs that readers see."""

import subprocess
import sys
from base64 import b64decode
from itertools import groupby

import nbformat
import pytest

from reference.notebooks import REPOSITORY, notebook_paths

PATHS = notebook_paths()
# What a fit of measured times finds depends a little on the machine's arithmetic.
FITTED = "02_calibration.ipynb"
# On one core, so that sweeps start no processes, each of which would load the program anew.
RUN = """
import os, random, sys
from pathlib import Path
import nbformat
from reference.notebooks import executed
os.sched_setaffinity(0, {random.choice([*os.sched_getaffinity(0)])})
nbformat.write(executed(Path(sys.argv[1])), sys.argv[2])
"""
# `make draws` runs these, too.
LONG = {"02_calibration.ipynb", "03_fairness_t.ipynb", "05_trade_offs.ipynb"}
by_name = pytest.mark.parametrize("path", PATHS, ids=[path.name for path in PATHS])
to_run = pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.name, marks=[pytest.mark.long] if path.name in LONG else [])
        for path in PATHS
    ],
)


def outputs(notebook, *, with_text):
    """What the cells of code show: kinds, and texts.

    Without texts, equal kinds in a row count once, as lines may be shown one by one.
    """
    shown = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if output.get("name") == "stderr":
                continue  # progress, which a run shows if it takes long
            data = dict(output.get("data", {}))
            kinds = [output["output_type"], *sorted(data)]
            data.pop("image/png", None)
            shown.append((kinds, output.get("text", ""), data) if with_text else kinds)
    return shown if with_text else [kinds for kinds, _ in groupby(shown)]


@to_run
def test_notebook_shows_what_a_run_of_it_shows(path, tmp_path):
    """`make notebooks` writes them anew. Its widget draws, or its cell had no picture.

    In a process of its own: the client of kernels waits for minutes in a process that has used
    event loops before.
    """
    made = tmp_path / path.name
    subprocess.run([sys.executable, "-c", RUN, str(path), str(made)], cwd=REPOSITORY, check=True)
    kept, fresh = (nbformat.read(each, as_version=4) for each in (path, made))
    with_text = path.name != FITTED
    assert outputs(fresh, with_text=with_text) == outputs(kept, with_text=with_text)


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

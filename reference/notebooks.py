"""Runs the notebooks and keeps small outputs in them: `python -m reference.notebooks`.

A picture is scaled to a width of 900 pixels and 64 colours. A widget, which pages that only show a
notebook cannot draw, is replaced by what it shows.
"""

import io
import os
import time
from base64 import b64decode, b64encode
from pathlib import Path
from queue import Empty
from typing import Any

import nbformat
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.channels import AsyncZMQSocketChannel
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from PIL import Image

REPOSITORY = Path(__file__).parents[1]
FOLDER = REPOSITORY / "notebooks"

_WIDTH_PX, _COLOURS = 900, 64
_PNG, _WIDGET = "image/png", "application/vnd.jupyter.widget-view+json"
_TIMEOUT_S = 300
_LOOK_AGAIN_S = 1.0


class _Channel(AsyncZMQSocketChannel):
    """Looks for messages every second.

    A single wait may miss the event of a message that has come (seen with jupyter_client 8.10 and
    pyzmq 27.3), and then lasts until its time-out.
    """

    async def get_msg(  # type: ignore[override]
        self, timeout: float | None = None
    ) -> dict[str, Any]:
        end_s = float("inf") if timeout is None else time.monotonic() + timeout
        while True:
            left_s = max(end_s - time.monotonic(), 0)
            try:
                return await super().get_msg(min(left_s, _LOOK_AGAIN_S))
            except Empty:
                if left_s <= _LOOK_AGAIN_S:
                    raise


class _Client(AsyncKernelClient):
    shell_channel_class = _Channel
    iopub_channel_class = _Channel


class _Manager(AsyncKernelManager):
    client_factory = _Client


def notebook_paths() -> list[Path]:
    """All notebooks of the project."""
    return sorted(FOLDER.glob("*.ipynb"))


def executed(path: Path) -> Any:
    """The notebook with the outputs of a fresh run, small as they are kept.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raises.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=_TIMEOUT_S, kernel_name="python3", kernel_manager_class=_Manager,
        resources={"metadata": {"path": str(path.parent)}},
    )  # fmt: skip
    places = [os.environ.get("PYTHONPATH", ""), str(REPOSITORY)]
    client.execute(env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places))})
    shown = {model: state["state"].get("outputs", []) for model, state in _widgets(notebook)}
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            outputs = [each for output in cell.outputs for each in _seen(output, shown)]
            cell.outputs = [_small(nbformat.from_dict(output)) for output in outputs]
    return notebook


def _widgets(notebook: Any) -> list[tuple[str, Any]]:
    states = notebook.metadata.get("widgets", {}).values()
    return [item for each in states for item in each["state"].items()]


def _seen(output: Any, shown: dict[str, Any]) -> list[Any]:
    """The output, or what every output area shows in the place of a widget."""
    if _WIDGET not in output.get("data", {}):
        return [output]
    return [each for outputs in shown.values() for each in outputs]


def _small(output: Any) -> Any:
    """The output with a small picture, and without the place of this checkout."""
    data = output.get("data", {})
    if _PNG in data:
        data[_PNG] = _small_picture(data[_PNG])
    for holder, key in ((output, "text"), (data, "text/plain"), (data, "text/html")):
        if key in holder:
            holder[key] = holder[key].replace(f"{REPOSITORY}/", "")
    return output


def _small_picture(encoded: str) -> str:
    picture = Image.open(io.BytesIO(b64decode(encoded))).convert("RGB")
    height = round(picture.height * _WIDTH_PX / picture.width)
    if picture.width > _WIDTH_PX:
        picture = picture.resize((_WIDTH_PX, height), Image.Resampling.LANCZOS)
    written = io.BytesIO()
    picture.quantize(_COLOURS).save(written, "png", optimize=True)
    return b64encode(written.getvalue()).decode("ascii") + "\n"


def main() -> None:
    """Run every notebook, and write it anew."""
    for path in notebook_paths():
        nbformat.write(executed(path), path)


if __name__ == "__main__":
    main()

"""Self-contained HTML documents, which run their own scripts only: the frame, and a log's page."""

import json
from base64 import b64encode
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sim.core.errors import InputError


def document(
    title: str, body: str, *, style: str, scripts: Iterable[bytes], refresh_s: int = 0
) -> str:
    """The whole document, which a browser loads again every `refresh_s` seconds; 0: never.

    Only `scripts` may run: browsers run no other, so HTML in a scenario's text, or in a request's
    name, cannot do anything. `body` is HTML, with the scripts in it; `style` is CSS.
    """
    hashes = (f"'sha256-{b64encode(sha256(each).digest()).decode('ascii')}'" for each in scripts)
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline';"
        f" script-src {' '.join(hashes)}"
    )
    refresh = f'<meta http-equiv="refresh" content="{refresh_s}">\n' if refresh_s else ""
    return f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
{refresh}<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def data_script(data: Any) -> str:
    """JSON that the page's script reads from the element `data`."""
    # No text of a scenario may end the element early.
    content = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return f'<script type="application/json" id="data">{content}</script>'


@cache
def page_file(name: str) -> str:
    return files("sim.report").joinpath("page_files", name).read_text(encoding="utf-8")


_FILE = "package_data/plotly.min.js"


@cache
def plotly_bytes() -> bytes:
    """The script.

    Raises InputError: the package is not installed as `requirements.lock` says.
    """
    # The package itself is not imported: that takes longer than reading the file.
    found = find_spec("plotly")
    folders = [] if found is None else list(found.submodule_search_locations or [])
    for folder in folders:
        path = Path(folder) / _FILE
        if path.is_file():
            return path.read_bytes()
    raise InputError("the package plotly is missing: install servetwin again (pip install -e .)")

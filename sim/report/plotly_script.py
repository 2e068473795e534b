"""Plotly's script for browsers. The package `plotly` brings it; nothing else of it is used."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from sim.core.errors import InputError

_FILE = "package_data/plotly.min.js"


@cache
def plotly_bytes() -> bytes:
    """The script.

    Raises:
        InputError: the package is not installed as `requirements.lock` says.
    """
    # The package itself is not imported: that takes longer than reading the file.
    found = find_spec("plotly")
    folders = [] if found is None else list(found.submodule_search_locations or [])
    for folder in folders:
        path = Path(folder) / _FILE
        if path.is_file():
            return path.read_bytes()
    raise InputError("the package plotly is missing: install servetwin again (pip install -e .)")

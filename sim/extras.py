"""Says how to install an optional part of servetwin, in the way that this copy was installed."""

import json
import os
import shlex
import sys
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import url2pathname

_PROJECT = Path(__file__).parents[2]


def how_to_install(extra: str) -> str:
    """A shell command that adds an extra of pyproject.toml to this installation.

    servetwin is on no package index, so the command names the folder or file it came from.
    """
    return " ".join([*_installer(), *_source(extra)])


def _source(extra: str) -> list[str]:
    """What pip installs: the folder, file or address that servetwin came from, with the extra."""
    record = _direct_url()
    url = record["url"]
    if url.startswith("file:"):
        options = ["-e"] if record.get("dir_info", {}).get("editable") else []
        path = _short(Path(url2pathname(urlparse(url).path)))
        return [*options, shlex.quote(f"{path}[{extra}]")]
    scheme = f"{record['vcs_info']['vcs']}+" if "vcs_info" in record else ""
    return [shlex.quote(f"servetwin[{extra}] @ {scheme}{url}")]


def _direct_url() -> dict[str, Any]:
    """The installer's record of where the project came from (PEP 610)."""
    try:
        text = distribution("servetwin").read_text("direct_url.json")
    except PackageNotFoundError:
        text = None
    working_tree = {"url": _PROJECT.as_uri(), "dir_info": {"editable": True}}
    return json.loads(text) if text else working_tree


def _installer() -> list[str]:
    """The program that made this environment: uv and pipx make one for each tool."""
    prefix = Path(sys.prefix)
    if (prefix / "uv-receipt.toml").exists():
        return ["uv", "tool", "install"]
    if (prefix / "pipx_metadata.json").exists():
        return ["pipx", "install", "--force"]
    # As it was called: resolved, the link in a virtual environment would lead out of it.
    python = _short(Path(sys.executable))
    if find_spec("pip") is None:
        return ["uv", "pip", "install", "--python", python]
    return [shlex.quote(python), "-m", "pip", "install"]


def _short(path: Path) -> str:
    """The path from the current folder if it is in it, else the whole path."""
    here = os.getcwd()  # noqa: PTH109 - not resolved
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)

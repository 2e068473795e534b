"""Says whether a file of results is whole."""

import csv
import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow.parquet as pq
import yaml

_PNG_END = b"IEND\xaeB`\x82"


def is_temporary(name: str) -> bool:
    """Whether no command reads a file, because a command that was killed may have left it.

    `name` is its path in the folder of the results; it may be in a temporary folder.
    """
    return any(part.startswith(".") and part.endswith(".tmp") for part in Path(name).parts)


def why_broken(path: Path) -> str:
    """What is wrong with a file; empty: it is whole."""
    if path.suffix not in _CHECKS:
        return "of an unknown kind"
    try:
        _CHECKS[path.suffix](path)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return ""


def _json(path: Path) -> None:
    json.loads(path.read_bytes())


def _json_lines(path: Path) -> None:
    _check_lines(path.read_bytes())


def _packed_lines(path: Path) -> None:
    _check_lines(gzip.decompress(path.read_bytes()))


def _check_lines(content: bytes) -> None:
    for line in content.splitlines():
        json.loads(line)
    _check_end(content, b"\n")


def _csv(path: Path) -> None:
    content = path.read_bytes()
    widths = {len(row) for row in csv.reader(content.decode().splitlines())}
    if len(widths) != 1:
        raise ValueError(f"rows of {sorted(widths)} cells")
    _check_end(content, b"\n")


def _yaml(path: Path) -> None:
    yaml.safe_load(path.read_text(encoding="utf-8"))["scheduler"]


def _png(path: Path) -> None:
    _check_end(path.read_bytes(), _PNG_END)


def _html(path: Path) -> None:
    _check_end(path.read_bytes().rstrip(), b"</html>")


def _svg(path: Path) -> None:
    _check_end(path.read_bytes().rstrip(), b"</svg>")


def _check_end(content: bytes, end: bytes) -> None:
    if not content.endswith(end):
        raise ValueError(f"ends with {content[-20:]!r}")


def _parquet(path: Path) -> None:
    pq.read_table(path)


_CHECKS: Mapping[str, Callable[[Path], object]] = {
    ".json": _json,
    ".jsonl": _json_lines,
    ".gz": _packed_lines,
    ".csv": _csv,
    ".yaml": _yaml,
    ".png": _png,
    ".svg": _svg,
    ".html": _html,
    ".parquet": _parquet,
}

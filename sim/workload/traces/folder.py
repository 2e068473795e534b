"""Traces of many files in one folder."""

from pathlib import Path

_SUFFIXES = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
NO_FILES = f"holds no file that ends in {', '.join(_SUFFIXES)}"


def trace_files(folder: Path) -> list[Path]:
    """The files of a folder that may hold a trace, by name."""
    return sorted(file for file in folder.iterdir() if file.name.endswith(_SUFFIXES))

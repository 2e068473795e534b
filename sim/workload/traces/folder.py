"""Folders that a trace's section may name: of its files, and of a tokenizer."""

from pathlib import Path

TOKENIZER_FILE = "tokenizer.json"
_SUFFIXES = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
NO_FILES = f"holds no file that ends in {', '.join(_SUFFIXES)}"


def trace_files(folder: Path) -> list[Path]:
    """The files of a folder that may hold a trace, by name."""
    return sorted(file for file in folder.iterdir() if file.name.endswith(_SUFFIXES))

"""Paths of files that another file names."""

import os
from pathlib import Path


def located(base_dir: Path, name: str) -> Path:
    """The path of a file that a file in `base_dir` names, without detours through `..`."""
    path = base_dir / name
    # From a folder that is a link, `..` leads to the folder above the link's target.
    is_link = base_dir.resolve() != Path(os.path.abspath(base_dir))  # noqa: PTH100 - unresolved
    return path if is_link else Path(os.path.normpath(path))

"""The paths that a command writes to, checked before it runs."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from sim.core.atomic import check_target
from sim.core.errors import InputError

_REQUEST_SUFFIXES = (".csv", ".parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFiles:
    """Where results are written, besides the summary on stdout; None: not written."""

    directory: Path | None = None
    decisions: Path | None = None
    requests: Path | None = None
    perfetto: Path | None = None

    def check(self, scenario: Path) -> None:
        """Check all paths before the run.

        Raises:
            InputError: a path cannot be written, or is another file of this run.
        """
        if self.requests is not None and self.requests.suffix not in _REQUEST_SUFFIXES:
            known = " or ".join(_REQUEST_SUFFIXES)
            raise InputError(f"{self.requests}: expected a name that ends in {known}")
        taken = {scenario.resolve(): "the scenario"}
        options = {
            "--decisions": self.decisions,
            "--requests": self.requests,
            "--perfetto": self.perfetto,
        }
        for option, path in options.items():
            if path is None:
                continue
            _check_file(path)
            if path.resolve() in taken:
                raise InputError(f"{option} {path}: is {taken[path.resolve()]}")
            taken[path.resolve()] = f"the file of {option} already"
        if self.directory is not None:
            _check_directory(self.directory)


def _check_file(path: Path) -> None:
    check_target(path)
    _check_writable(path, path.parent)


def _check_directory(path: Path) -> None:
    if path.is_dir():
        _check_writable(path, path)
    elif path.exists():
        raise InputError(f"{path}: is a file, expected a folder")
    elif not path.parent.is_dir():
        raise InputError(f"{path}: its folder {path.parent} does not exist")
    else:
        _check_writable(path, path.parent)


def _check_writable(path: Path, folder: Path) -> None:
    """Try to write: permission bits alone do not show whether it works."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error

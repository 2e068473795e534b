"""Loads latency profiles: those that ship with servetwin, or a file."""

from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from sim.core.errors import InputError
from sim.core.files import located
from sim.core.messages import unknown_name
from sim.core.packed import STDIN, read_text
from sim.latency.profile.format import LatencyProfile, parse_profile

_SUFFIX = ".json"


def load_profile(name_or_path: str, base_dir: Path) -> LatencyProfile:
    """Load a shipped profile or a profile file.

    Args:
        name_or_path: if it ends in `.json`, the path of a file, relative to `base_dir` unless
            absolute; otherwise the name of a shipped profile, such as `example/tiny-cpu`.
        base_dir: the directory of the file that names the profile.

    Raises:
        InputError: the name is unknown, or see `read_profile`.
    """
    if name_or_path == str(STDIN):
        return read_profile(STDIN)
    if name_or_path.endswith(_SUFFIX):
        return read_profile(located(base_dir, name_or_path))
    shipped = shipped_profiles()
    if name_or_path not in shipped:
        reason = unknown_name("profile", name_or_path, shipped)
        reason = f"{reason}; the path of a file ends in {_SUFFIX}"
        raise InputError(reason, key=("latency", "path"))
    text = shipped[name_or_path].read_text(encoding="utf-8")
    return parse_profile(text, f"profile {name_or_path}")


def read_profile(path: Path) -> LatencyProfile:
    """Read a profile file.

    Raises:
        InputError: the file cannot be read, or see `parse_profile`.
    """
    return parse_profile(read_text(path), str(path))


def shipped_profiles() -> Mapping[str, Traversable]:
    """The shipped profiles by name, such as `example/tiny-cpu`."""
    # They are data files of `calibrate`, which makes them. None of its code is imported here.
    folder = files("calibrate") / "profiles"
    return dict(sorted(_below(folder, ""))) if folder.is_dir() else {}


def _below(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _below(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(_SUFFIX):
            yield prefix + entry.name.removesuffix(_SUFFIX), entry

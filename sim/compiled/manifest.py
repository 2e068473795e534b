"""What a build was made from: a list of its sources with their hashes.

A build is a folder with a shared library and the file `sources`. Its first line says how the build
was made, for the program that makes builds. Each other line names a source: the hash of its
content, `compiled` or `read` (read for its types and constants), and the path from the folder that
holds `sim`.
"""

from collections.abc import Iterable
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import source_hash
from pathlib import Path

LIBRARY, STARTER = "servetwin__mypyc", "servetwin_start"
ROOT = Path(__file__).parents[2]
BUILDS = Path(__file__).with_name("builds")
# Why the last attempt to make a build failed.
FAILED = BUILDS / "failed"
_SOURCES = "sources"


class Build:
    """A build that exists.

    Attributes:
        library: its shared library, which fits this Python's version and system.
        made_with: how it was made.
        compiled: paths of the sources of its modules, from the root.
        modules: full names of these.
    """

    def __init__(self, folder: Path) -> None:
        """Read what a build was made from.

        Raises:
            OSError: there is none in the folder.
            ValueError: the list of its sources is damaged.
        """
        self.library = library_in(folder)
        self.made_with, *lines = (folder / _SOURCES).read_text(encoding="utf-8").splitlines()
        self._sources = [line.split(" ", 2) for line in lines]
        self.compiled = {path for _, use, path in self._sources if use == "compiled"}
        self.modules = frozenset(map(module_name, self.compiled))

    def changed_source(self) -> str | None:
        """The first source whose content is not that of the build."""
        for known, _, path in self._sources:
            if hash_of(ROOT / path) != known:
                return path
        return None


def found_builds() -> list[Build]:
    """Builds for this Python, the newest first."""
    try:
        libraries = BUILDS.glob(f"*/{LIBRARY}{EXTENSION_SUFFIXES[0]}")
        newest = sorted(libraries, key=lambda library: -library.stat().st_mtime_ns)
        return [Build(library.parent) for library in newest]
    except (OSError, ValueError):
        # There is none, or one is just being replaced.
        return []


def library_in(folder: Path) -> Path:
    """The shared library of a build of this Python."""
    return folder / (LIBRARY + EXTENSION_SUFFIXES[0])


def module_name(path: str) -> str:
    """The full name of a module, given its path from the root."""
    return path.removesuffix(".py").replace("/", ".")


def why_none_was_made() -> str:
    """Why there are no builds."""
    try:
        return FAILED.read_text(encoding="utf-8").strip()
    except OSError:
        return "nothing is compiled"


def hash_of(path: Path) -> str:
    """The hash that Python itself uses to tell whether a source has changed; "" without a file."""
    try:
        return source_hash(path.read_bytes()).hex()
    except OSError:
        return ""


def write_sources(
    folder: Path, made_with: str, compiled: Iterable[str], read: Iterable[str]
) -> str:
    """List the sources of a build, given as paths from the root; returns the list."""
    used = [*((path, "compiled") for path in compiled), *((path, "read") for path in read)]
    lines = [made_with, *(f"{hash_of(ROOT / path)} {use} {path}" for path, use in used)]
    text = "\n".join(lines) + "\n"
    (folder / _SOURCES).write_text(text, encoding="utf-8")
    return text

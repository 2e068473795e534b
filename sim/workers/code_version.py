"""The version of the code: results of other versions are not used, and machines must agree."""

import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from sim import __version__

# Suffixes of files that results depend on; caches of compiled code are not among them.
_SOURCES = (".py", ".json", ".yaml")


@cache
def code_version() -> str:
    """The version of servetwin and a hash of its sources: `0.1.0+5f0c...`."""
    digest = hashlib.sha256()
    for name, source in sorted(_sources(files("sim"), "")):
        content = source.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return f"{__version__}+{digest.hexdigest()[:16]}"


def _sources(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _sources(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(_SOURCES):
            yield prefix + entry.name, entry

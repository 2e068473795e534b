"""The version of the code, and versions of servers, such as 0.5.10.post1."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from sim import __version__


def entry_for(version: str, entries: Mapping[str, str]) -> str | None:
    """The entry of the last version that is not after `version`.

    Args:
        version: a server's version; what follows its third number does not count.
        entries: by the first version that they are for, in ascending order.

    Returns:
        The entry; the first one if all are for later versions. None: `version` is not a version,
        for example the name of a nightly build.
    """
    if (wanted := _numbers(version)) is None:
        return None
    found = next(iter(entries.values()))
    for first, entry in entries.items():
        numbers = _numbers(first)
        if numbers is not None and numbers <= wanted:
            found = entry
    return found


def _numbers(version: str) -> tuple[int, ...] | None:
    match = re.match(r"v?(\d+)\.(\d+)\.(\d+)", version)
    return None if match is None else tuple(int(number) for number in match.groups())


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

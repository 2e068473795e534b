"""Versions of servers, such as 0.5.10.post1."""

import re
from collections.abc import Mapping


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


def is_version(text: str) -> bool:
    """Whether a text begins with a version's three numbers."""
    return _numbers(text) is not None


def same_version(one: str, other: str) -> bool:
    """Whether two versions have the same three numbers."""
    return is_version(one) and _numbers(one) == _numbers(other)


def _numbers(version: str) -> tuple[int, ...] | None:
    match = re.match(r"v?(\d+)\.(\d+)\.(\d+)", version)
    return None if match is None else tuple(int(number) for number in match.groups())

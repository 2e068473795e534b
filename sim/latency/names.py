"""The message for a name that is in no table, with the nearest one that is."""

from collections.abc import Iterable
from difflib import get_close_matches


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    known = sorted(known)
    near = get_close_matches(name.lower(), known, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"unknown {what} {name!r} ({hint}known: {', '.join(known)})"

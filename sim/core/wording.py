"""Words of error messages: what a value is, what was perhaps meant, all on one line."""

from collections.abc import Iterable
from difflib import get_close_matches

# Keys from the top of a document down to a value; a number is a place in a list.
KeyPath = tuple[str | int, ...]

_MAX_SHOWN = 60


def shorten(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."


def dotted(path: KeyPath) -> str:
    """A key path as `--set` takes it: `workload.parts.0.tenant`."""
    return one_line(".".join(shorten(str(part)) for part in path))


def describe(value: object) -> str:
    """A YAML value in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"the string {shorten(repr(value))}"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return str(value)


def did_you_mean(word: object, known: Iterable[str]) -> str | None:
    """The known name nearest to `word`, if any is near."""
    if not isinstance(word, str):
        return None
    near = get_close_matches(word, sorted(known), n=1)
    if not near and word.lower() != word:
        near = get_close_matches(word.lower(), sorted(known), n=1)
    return near[0] if near else None


def unknown_value(what: str, value: object, known: Iterable[str]) -> str:
    """`unknown kind 'synthtic' (did you mean synthetic?)`, or the whole list."""
    names = list(known)
    if not isinstance(value, str):
        return f"must be one of {', '.join(names)}, got {describe(value)}"
    shown = shorten(repr(value))
    near = did_you_mean(value, names)
    if near is not None:
        return f"unknown {what} {shown} (did you mean {near}?)"
    if len(names) == 1:
        return f"unknown {what} {shown} (it can only be {names[0]})"
    return f"unknown {what} {shown} (one of: {', '.join(names)})"


def one_line(text: str) -> str:
    """The text with line breaks and other unprintable characters escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )

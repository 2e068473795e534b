"""Parses the text of Python objects in a server's log: its settings, and SGLang's requests.

SGLang 0.5.23 writes requests by `_dataclass_to_string_truncated`
(`sglang/srt/utils/request_logger.py`). A dataclass is `Name(field=value, ...)`. Dictionaries,
lists, strings and numbers are written as in Python. A list or string that is longer than the log
level allows is cut: `[first half] ... [second half]`. Any other object's text is skipped.
"""

import ast
import json
import re
from typing import NamedTuple

_STRING = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")
_WHOLE_NUMBERS = re.compile(r"\[-?\d+(?:, -?\d+)*\]", re.ASCII)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?=[,)}\]\s]|$)", re.ASCII)
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9.]*", re.ASCII)
_WORDS = {"None": None, "True": True, "False": False}
_CUT = " ... "
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_MAX_DEPTH = 50


class CutValue(NamedTuple):
    """A list or string that was cut in the log; only its first half is kept here."""

    beginning: object


class LoggedDataclass(NamedTuple):
    """A dataclass in the log: its name and its fields."""

    name: str
    fields: dict[str, object]


class SkippedText(NamedTuple):
    """The text of an object that is neither a dataclass nor a plain value."""

    text: str


class LogFormatError(Exception):
    """The text is cut off, or does not have this format."""


def read_value(text: str, start: int) -> tuple[object, int]:
    """Parse the value that begins at `start`; returns it and the position after it.

    Raises LogFormatError: no value begins there.
    """
    return _Reader(text).value(start, depth=0)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        # By quotation mark: from here on, no string that begins with it has an end.
        self._endless: dict[str, int] = {}

    def value(self, at: int, *, depth: int) -> tuple[object, int]:
        if depth > _MAX_DEPTH:
            raise LogFormatError("nested too deep")
        value, at = self._plain(at, depth)
        if isinstance(value, str | list) and self._text.startswith(_CUT, at):
            _, at = self._plain(at + len(_CUT), depth)
            return CutValue(value), at
        return value, at

    def _plain(self, at: int, depth: int) -> tuple[object, int]:
        found: tuple[object, int]
        match self._text[at : at + 1]:
            case "'" | '"':
                found = self._string(at)
            case "[":
                found = self._list(at, depth)
            case "(":
                found = self._items(at + 1, ")", depth)
            case "{":
                found = self._pairs(at + 1, depth)
            case _:
                found = self._word(at, depth)
        return found

    def _word(self, at: int, depth: int) -> tuple[object, int]:
        """A number, a constant, a dataclass, or the text of another object."""
        number = _NUMBER.match(self._text, at)
        if number is not None:
            return _literal(number[0], at), number.end()
        name = _NAME.match(self._text, at)
        if name is not None and name[0] in _WORDS:
            return _WORDS[name[0]], name.end()
        if name is not None and self._text.startswith("(", name.end()):
            try:
                return self._fields(name[0], name.end() + 1, depth)
            except LogFormatError:
                return self._skip_text(at)
        return self._skip_text(at)

    def _list(self, at: int, depth: int) -> tuple[list[object], int]:
        numbers = _WHOLE_NUMBERS.match(self._text, at)
        if numbers is None:
            return self._items(at + 1, "]", depth)
        # Token ids make up most of a log, and json.loads reads them fast.
        try:
            return json.loads(numbers[0]), numbers.end()
        except ValueError:
            raise LogFormatError(f"the list at column {at + 1} has a bad number") from None

    def _string(self, at: int) -> tuple[str, int]:
        match = self._match_string(at)
        if match is None:
            raise LogFormatError(f"the string at column {at + 1} has no end")
        return str(_literal(match[0], at)), match.end()

    def _match_string(self, at: int) -> re.Match[str] | None:
        quote = self._text[at]
        if at >= self._endless.get(quote, len(self._text)):
            return None
        match = _STRING.match(self._text, at)
        if match is None:
            self._endless[quote] = at
        return match

    def _items(self, at: int, end: str, depth: int) -> tuple[list[object], int]:
        items: list[object] = []
        while not self._text.startswith(end, at):
            item, at = self.value(at, depth=depth + 1)
            items.append(item)
            at = self._after_comma(at, end)
        return items, at + 1

    def _pairs(self, at: int, depth: int) -> tuple[dict[object, object], int]:
        pairs: dict[object, object] = {}
        while not self._text.startswith("}", at):
            key, at = self.value(at, depth=depth + 1)
            at = self._after(":", at)
            # JSON may have no blank.
            at += self._text.startswith(" ", at)
            value, at = self.value(at, depth=depth + 1)
            pairs[str(key)] = value
            at = self._after_comma(at, "}")
        return pairs, at + 1

    def _fields(self, name: str, at: int, depth: int) -> tuple[LoggedDataclass, int]:
        fields: dict[str, object] = {}
        while not self._text.startswith(")", at):
            field = _NAME.match(self._text, at)
            if field is None:
                raise LogFormatError(f"no field name at column {at + 1}")
            at = self._after("=", field.end())
            try:
                fields[field[0]], at = self.value(at, depth=depth + 1)
            except LogFormatError:
                # A set, or another object that looks like a list.
                fields[field[0]], at = self._skip_text(at)
            at = self._after_comma(at, ")")
        return LoggedDataclass(name, fields), at + 1

    def _after_comma(self, at: int, end: str) -> int:
        if self._text.startswith(end, at):
            return at
        at = self._after(",", at)
        return at + 1 if self._text.startswith(" ", at) else at

    def _after(self, mark: str, at: int) -> int:
        if not self._text.startswith(mark, at):
            raise LogFormatError(f"no {mark!r} at column {at + 1}")
        return at + len(mark)

    def _skip_text(self, at: int) -> tuple[SkippedText, int]:
        """Skip the text of an object: up to the next comma or closing bracket outside of it."""
        start, open_brackets = at, []
        while at < len(self._text):
            char = self._text[at]
            if char in {"'", '"'} and (match := self._match_string(at)) is not None:
                at = match.end()
                continue
            if char in _CLOSING:
                open_brackets.append(_CLOSING[char])
            elif open_brackets and char == open_brackets[-1]:
                open_brackets.pop()
            elif not open_brackets and char in ",)]}":
                break
            at += 1
        if at == start or open_brackets:
            raise LogFormatError(f"no complete value at column {start + 1}")
        return SkippedText(self._text[start:at]), at


def _literal(text: str, at: int) -> object:
    """The value of a Python number or string."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError):
        # 007, a number of 5,000 digits, an escape that is cut off, or a NUL.
        raise LogFormatError(f"no Python value at column {at + 1}") from None

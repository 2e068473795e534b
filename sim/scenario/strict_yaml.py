"""Strict YAML: text that can be misread is an error, and the line of each key is known.

PyYAML's own constructors keep the last of duplicate keys, read `1e-3` as text, `12:30` as 750 and
`off` as false. So only its parser is used, and values are built here from its events. Anchors,
aliases, merge keys and tags are refused.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from sim.core.errors import InputError, KeyPath, one_line
from sim.core.files import note_input
from sim.core.packed import open_file

Scalar = None | bool | int | float | str

_CONSTANTS: dict[str, bool | None] = {
    "": None,
    "~": None,
    "null": None,
    "true": True,
    "false": False,
}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)", re.ASCII)
_FLOAT = re.compile(r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?", re.ASCII)
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(inf|nan)", re.ASCII | re.IGNORECASE)
_NONZERO_MANTISSA = re.compile(r"[-+0.]*[1-9]", re.ASCII)

MAX_INTEGER = 2**63 - 1
_MAX_INTEGER_DIGITS = 19


def parse_plain_scalar(text: str) -> Scalar:
    """The value of an unquoted scalar: YAML 1.2's core types without what surprises people.

    Only `true` and `false` are booleans. Only `null`, `~` and an empty scalar are null. Dates,
    times of day, `on`, `yes`, `0x10` and `1_000` are text. A number that can be read in two ways,
    such as `010`, or that is not finite, such as `.inf`, is an error.

    Raises:
        InputError: the scalar is a bad number. The message is the reason; the caller adds the line.
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return _parse_integer(text)
    if _LEADING_ZERO.fullmatch(text):
        raise InputError(
            f"{text} begins with a zero: drop the zero if it is a number, quote it if it is text"
        )
    if _FLOAT.fullmatch(text):
        return _parse_float(text)
    if _NOT_FINITE.fullmatch(text):
        raise InputError(f"{text} is not a finite number")
    return text


def _parse_integer(text: str) -> int:
    # Digits are counted first, because int() raises ValueError for thousands of them.
    if len(text.lstrip("+-")) > _MAX_INTEGER_DIGITS or abs(int(text)) > MAX_INTEGER:
        raise InputError(f"{_shorten(text)} is too large: whole numbers end at 2**63 - 1")
    return int(text)


def _parse_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise InputError(f"{_shorten(text)} is too large for a floating-point number")
    if number == 0.0 and _NONZERO_MANTISSA.match(text):
        raise InputError(f"{_shorten(text)} is too small for a floating-point number")
    return number


def _shorten(text: str) -> str:
    return text if len(text) <= 30 else f"{text[:27]}..."


YamlValue = Scalar | list["YamlValue"] | dict[str, "YamlValue"]

MAX_BYTES = 1 << 20
MAX_DEPTH = 64


class YamlDocument(NamedTuple):
    """A parsed document.

    Attributes:
        lines: the line on which each key or list item begins, by its path, in the order of the
            document. The empty path is the document itself.
    """

    value: YamlValue
    lines: Mapping[KeyPath, int]


def read_yaml_file(path: Path) -> str:
    """The text of a scenario file.

    Raises InputError: the file is missing, a folder, too large or not UTF-8, or cannot be read.
    """
    try:
        with open_file(path) as file:
            note_input(path, file.fileno())
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder, not a file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path}: cannot be read: {reason}") from None
    if len(content) > MAX_BYTES:
        raise InputError(f"{path}: larger than {MAX_BYTES:,} bytes: not a scenario file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}: not UTF-8 text") from None


def parse_yaml_value(text: str, name: str) -> YamlValue:
    """Parse a value that is in no file. Raises InputError `name: reason`."""
    return _Builder(name, show_lines=False).build(text).value


def parse_yaml_mapping(text: str, name: str) -> YamlDocument:
    """Parse one document whose top level is a mapping.

    Errors call the text `name`, for instance its file.
    """
    document = _Builder(name, show_lines=True).build(text)
    if document.value is None:
        raise InputError(f"{name}: is empty")
    if not isinstance(document.value, dict):
        line = document.lines[()]
        raise InputError(f"{name}:{line}: the top level must be a mapping of keys to values")
    return document


@dataclass(slots=True, eq=False)
class _Builder:
    """Turns the parser's events into data; an instance is used for one document."""

    name: str
    show_lines: bool
    lines: dict[KeyPath, int] = field(default_factory=dict)

    def build(self, text: str) -> YamlDocument:
        events = self._checked_events(text)
        value: YamlValue = None
        num_documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                num_documents += 1
                if num_documents > 1:
                    raise self._error(event, "a second document begins here: one is allowed")
                value = self._value(next(events), events, ())
        return YamlDocument(value, self.lines)

    def _value(self, event: yaml.Event, events: Iterator[yaml.Event], path: KeyPath) -> YamlValue:
        self.lines.setdefault(path, _line(event))
        if len(path) > MAX_DEPTH:
            raise self._error(event, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(events, path)
        return self._mapping(events, path)

    def _scalar(self, event: yaml.ScalarEvent) -> Scalar:
        text: str = event.value
        if any(char == "\0" or "\ud800" <= char <= "\udfff" for char in text):
            raise self._error(event, "a character here is not allowed in text")
        if event.style is not None:
            return text
        try:
            return parse_plain_scalar(text)
        except InputError as error:
            raise self._error(event, str(error)) from None

    def _sequence(self, events: Iterator[yaml.Event], path: KeyPath) -> list[YamlValue]:
        items: list[YamlValue] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(self._value(event, events, (*path, len(items))))
        return items

    def _mapping(self, events: Iterator[yaml.Event], path: KeyPath) -> dict[str, YamlValue]:
        mapping: dict[str, YamlValue] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            key = self._key(event)
            if key in mapping:
                first = self.lines[*path, key]
                raise self._error(event, f"duplicate key {key!r}, first given on line {first}")
            self.lines[*path, key] = _line(event)
            mapping[key] = self._value(next(events), events, (*path, key))
        return mapping

    def _key(self, event: yaml.Event) -> str:
        # A key is the text as written: the keys of `on: 1` and `1: x` are "on" and "1".
        if not isinstance(event, yaml.ScalarEvent):
            raise self._error(event, "a key must be text, not a list or a mapping")
        self._scalar(event)
        if not event.value:
            raise self._error(event, "a key is empty")
        if event.value == "<<" and event.style is None:
            raise self._error(event, "merge keys (<<) are not supported")
        return str(event.value)

    def _checked_events(self, text: str) -> Iterator[yaml.Event]:
        try:
            for event in yaml.parse(text, Loader=yaml.SafeLoader):
                self._refuse_indirection(event)
                yield event
        except yaml.MarkedYAMLError as error:
            raise self._syntax_error(error) from None
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            raise self._error(line, "a character here is not allowed") from None
        except (ValueError, OverflowError):
            # An escape beyond Unicode ("\UFFFFFFFF") reaches chr() in PyYAML's scanner.
            raise InputError(f"{self.name}: not valid YAML: an impossible character") from None

    def _refuse_indirection(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise self._error(event, "anchors and aliases (& and *) are not supported")
        if (tag := getattr(event, "tag", None)) is not None:
            raise self._error(event, f"tags ({tag}) are not supported")

    def _syntax_error(self, error: yaml.MarkedYAMLError) -> InputError:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        problem = " ".join(str(error.problem).split())
        if r"'\t'" in problem:
            return self._error(line, "a tab where YAML allows only spaces")
        context = ""
        if error.context and error.context_mark and self.show_lines:
            began = error.context_mark.line + 1
            context = f" ({' '.join(error.context.split())} begun on line {began})"
        return self._error(line, f"not valid YAML: {problem}{context}")

    def _error(self, at: yaml.Event | int, reason: str) -> InputError:
        line = at if isinstance(at, int) else _line(at)
        place = f"{self.name}:{line}" if self.show_lines else self.name
        return InputError(one_line(f"{place}: {reason}"))


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


_WIDTH = 88


def yaml_text(data: Any) -> str:
    """JSON-like data as YAML: keys in the order given, innermost lists and mappings on one line."""
    text: str = yaml.safe_dump(
        data, sort_keys=False, allow_unicode=True, width=_WIDTH, default_flow_style=None
    )
    return text

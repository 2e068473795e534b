"""Reads a text file, plain or gzip, line by line. Errors name the line."""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from sim.core import packed
from sim.core.errors import InputError
from sim.core.messages import shorten

_BOM = b"\xef\xbb\xbf"

JsonObject = dict[str, object]


class TextLine(NamedTuple):
    """One line, its file, and its number, counted from 1.

    `within` leads to the object of the line that is read, such as `requests[3].`; errors put it
    before the key.
    """

    path: str
    number: int
    text: str
    within: str = ""

    def error(self, key: str, reason: str) -> InputError:
        return InputError(f"{self.path}:{self.number}: {self.within}{key}: {reason}")

    def below(self, part: str) -> "TextLine":
        """The same line, for the object that `part` leads to: `requests[3]`."""
        return self._replace(within=f"{self.within}{part}.")


def read_lines(path: Path) -> Iterator[TextLine]:
    """Yield the lines without line ends. Blank lines are counted, but not yielded.

    Raises:
        InputError: the file cannot be read, is cut off, or is not UTF-8.
    """
    for number, data in enumerate(packed.read_lines(path), start=1):
        try:
            text = data.removeprefix(_BOM if number == 1 else b"").decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            reason = f"byte {error.start + 1} is not UTF-8"
            raise InputError(f"{path}:{number}: {reason}") from error
        if text.strip():
            yield TextLine(str(path), number, text)


def read_json_lines(path: Path) -> Iterator[tuple[TextLine, JsonObject]]:
    """Yield every line with its JSON object. Fractions are Decimals, so that times are exact.

    Raises:
        InputError: as `read_lines`; or a line is not a JSON object with distinct keys.
    """
    for line in read_lines(path):
        yield line, parse_object(line)


def why_malformed(error: Exception) -> str:
    """The reason why a text is not JSON."""
    match error:
        case json.JSONDecodeError():
            return f"{error.msg} at column {error.colno}"
        case RecursionError():
            return "nested too deep"
    return "a number is too long or too large"


class KeyTwiceError(Exception):
    """A JSON object has this key twice."""


def _distinct_keys(pairs: list[tuple[str, object]]) -> JsonObject:
    row = dict(pairs)
    if len(row) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise KeyTwiceError(key)
            seen.add(key)
    return row


# Made once, because making it takes as long as decoding a short line.
DECODER = json.JSONDecoder(parse_float=Decimal, object_pairs_hook=_distinct_keys)


def parse_value(line: TextLine) -> object:
    """The JSON value of a line. Keys must be distinct; fractions are Decimals.

    Raises:
        InputError: the line is not JSON.
    """
    try:
        return DECODER.decode(line.text)
    except KeyTwiceError as error:
        raise line.error(json.dumps(shorten(error.args[0])), "occurs twice") from None
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise InputError(
            f"{line.path}:{line.number}: malformed JSON: {why_malformed(error)}"
        ) from error


def parse_object(line: TextLine) -> JsonObject:
    """The JSON object of a line; see `parse_value`. Raises InputError if it is none."""
    row = parse_value(line)
    if not isinstance(row, dict):
        raise InputError(f"{line.path}:{line.number}: not a JSON object")
    return row

"""Reads the files of traces, plain or gzip: text line by line, and JSON objects one by one.

Errors name the line. A data set of conversations is often one list of hundreds of megabytes,
without line breaks. So objects are decoded from a buffer that holds little more than one of them.
"""

import codecs
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from sim.core import packed
from sim.core.errors import InputError, shorten
from sim.core.packed import MAX_LINE_BYTES, open_unpacked

TOKENIZER_FILE = "tokenizer.json"
_SUFFIXES = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
NO_FILES = f"holds no file that ends in {', '.join(_SUFFIXES)}"


def trace_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.name.endswith(_SUFFIXES))


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
    """Yield the lines without line ends. Blank lines are counted, but not yielded."""
    for number, data in enumerate(packed.read_lines(path), start=1):
        try:
            text = data.removeprefix(_BOM if number == 1 else b"").decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            reason = f"byte {error.start + 1} is not UTF-8"
            raise InputError(f"{path}:{number}: {reason}") from error
        if text.strip():
            yield TextLine(str(path), number, text)


def read_json_lines(path: Path) -> Iterator[tuple[TextLine, JsonObject]]:
    """Yield every line with its JSON object. Fractions are Decimals, so that times are exact."""
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


class DuplicateKeyError(Exception):
    """A JSON object has this key twice."""


def _distinct_keys(pairs: list[tuple[str, object]]) -> JsonObject:
    row = dict(pairs)
    if len(row) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise DuplicateKeyError(key)
            seen.add(key)
    return row


# Made once, because making it takes as long as decoding a short line.
DECODER = json.JSONDecoder(parse_float=Decimal, object_pairs_hook=_distinct_keys)


def parse_value(line: TextLine) -> object:
    """The JSON value of a line. Keys must be distinct; fractions are Decimals."""
    try:
        return DECODER.decode(line.text)
    except DuplicateKeyError as error:
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


# The longest word that may be cut off at the end of the buffer: `-Infinity`, or an escape.
_LONGEST_WORD = 16
_SPACE = re.compile(r"[ \t\n\r]*")


def read_json_items(path: Path) -> Iterator[tuple[TextLine, JsonObject]]:
    """Yield each object of a file, with the line that it begins on (whose `text` is empty)."""
    with open_unpacked(path) as unpacked:
        yield from _Items(path, unpacked.parts()).objects()


class _Items:
    """The text of a file, from the place up to which it has been read."""

    def __init__(self, path: Path, parts: Iterator[bytes]) -> None:
        self._path = path
        self._parts = parts
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text, self._place, self._number = "", 0, 1
        self._at_end = False

    def objects(self) -> Iterator[tuple[TextLine, JsonObject]]:
        in_list = self._next_character() == "["
        self._place += in_list
        num_items = 0
        while (character := self._next_character()) != ("]" if in_list else ""):
            if in_list and num_items:
                if character != ",":
                    raise self._error(f"malformed JSON: expected , or ] after item {num_items}")
                self._place += 1
                self._next_character()
            line = TextLine(str(self._path), self._number, "")
            yield line, self._object()
            num_items += 1
        self._place += in_list
        if self._next_character():
            raise self._error("malformed JSON: something follows the list")

    def _next_character(self) -> str:
        """Skip white space; returns the character after it, empty at the end of the file."""
        while True:
            match = _SPACE.match(self._text, self._place)
            self._skip_to(self._place if match is None else match.end())
            if self._place < len(self._text):
                return self._text[self._place]
            if self._at_end:
                return ""
            self._read_on()

    def _object(self) -> JsonObject:
        while True:
            try:
                found, end = DECODER.raw_decode(self._text, self._place)
                break
            except DuplicateKeyError as error:
                raise self._error(f"{json.dumps(shorten(error.args[0]))}: occurs twice") from None
            except json.JSONDecodeError as error:
                if self._at_end or not self._may_be_cut_off(error):
                    number = self._number + self._text.count("\n", self._place, error.pos)
                    raise InputError(
                        f"{self._path}:{number}: malformed JSON: {error.msg}"
                    ) from None
            except (ValueError, ArithmeticError, RecursionError) as error:
                raise self._error(f"malformed JSON: {why_malformed(error)}") from None
            # Twice as much each time, so that a large object is not decoded over and over.
            wanted = 2 * (len(self._text) - self._place)
            while len(self._text) - self._place < wanted and not self._at_end:
                self._read_on()
        if not isinstance(found, dict):
            raise self._error("not a JSON object")
        self._skip_to(end)
        return found

    def _may_be_cut_off(self, error: json.JSONDecodeError) -> bool:
        is_text = error.msg.startswith("Unterminated string")
        return is_text or error.pos > len(self._text) - _LONGEST_WORD

    def _read_on(self) -> None:
        part = next(self._parts, b"")
        self._at_end = not part
        try:
            more = self._decoder.decode(part, final=self._at_end)
        except UnicodeDecodeError:
            number = self._number + self._text.count("\n", self._place)
            raise InputError(f"{self._path}:{number}: not UTF-8 here, or below") from None
        self._text, self._place = self._text[self._place :] + more, 0
        if len(self._text) > MAX_LINE_BYTES:
            raise self._error(f"an object is longer than {MAX_LINE_BYTES >> 20} MiB")

    def _skip_to(self, place: int) -> None:
        self._number += self._text.count("\n", self._place, place)
        self._place = place

    def _error(self, reason: str) -> InputError:
        return InputError(f"{self._path}:{self._number}: {reason}")

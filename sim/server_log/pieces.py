"""Lines that are a list of values: `#new-seq: 1, #new-token: 7, token usage: 0.00`.

A server writes lines of few shapes. The first line of a shape is taken to pieces, which a table
knows; from then on one regular expression reads it whole. It has no repeats but those of single
values, so that a line is read in linear time.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sim.server_log.records import FieldValue
from sim.server_log.text_lines import cleaned

COUNT = rb"(\d{1,15})"
DECIMAL = rb"(-?\d{1,15}\.?\d{0,15})"
PERCENT = DECIMAL + rb"%"
YES_OR_NO = rb"(True|False)"
_CONVERTERS: dict[bytes, Callable[[bytes], FieldValue]] = {
    COUNT: int,
    DECIMAL: float,
    YES_OR_NO: b"True".__eq__,
}
_SEPARATOR = b", "
_ANY_VALUE = rb"[^,]*+"
# A server writes lines of a handful of forms. A log with more is damaged: lines of further forms
# count as not understood.
_MAX_SHAPES = 200
_MAX_PIECES = 40
_MAX_WORDS = 60


class Piece(NamedTuple):
    """One value of a line.

    Attributes:
        name: the field's name, with its unit.
        pattern: how the value is written, with `COUNT`, `DECIMAL` or `YES_OR_NO` for the value.
        is_list: the field has several numbers, and this is the first.
        continues: this is a further number of such a field.
    """

    name: str
    pattern: bytes
    is_list: bool = False
    continues: bool = False

    @property
    def converter(self) -> Callable[[bytes], FieldValue]:
        return next(make for value, make in _CONVERTERS.items() if value in self.pattern)


class _Shape(NamedTuple):
    """A shape of line: what reads it, and for each value its name, what makes it, and its group."""

    match: Callable[[bytes], re.Match[bytes] | None]
    values: tuple[tuple[str, Callable[[bytes], FieldValue], int], ...]
    unknown: tuple[str, ...]
    lists: frozenset[str]


class Pieces:
    """Reads the lines of one kind.

    Attributes:
        unknown: how many lines had a value that the table does not know, by its words.
    """

    def __init__(self, head: bytes, pieces: Sequence[Piece], needed: Sequence[str]) -> None:
        """Take what stands before the values, their table, and the names that a line must have.

        `head` is an expression for the beginning of the line. Its first group is what stands before
        the engine's line, and its groups come before the values.
        """
        self._head = re.compile(head)
        self._num_head = self._head.groups
        self._head_text = head
        self._table = [(re.compile(piece.pattern), piece) for piece in pieces]
        self._needed = frozenset(needed)
        self._shapes: list[_Shape] = []
        self._last = _Shape(re.compile(rb"(?!)").match, (), (), frozenset())
        self.unknown: Counter[str] = Counter()

    def read(self, line: bytes) -> tuple[tuple[Any, ...], dict[str, FieldValue]] | None:
        """The groups, those of the head first, and the fields; None: it is no such line."""
        shape = self._last
        if (found := shape.match(line)) is None:
            if (shape_and_found := self._other_shape(line)) is None:
                return None
            shape, found = shape_and_found
        groups = found.groups()
        if groups[0] and (b"'" in groups[0] or b'"' in groups[0]):
            return None  # A logged prompt quotes such a line.
        if shape.unknown:
            self.unknown.update(shape.unknown)
        if shape.lists:
            return groups, _with_lists(shape, groups)
        # Nearly all time is spent here.
        return groups, {name: make(groups[at]) for name, make, at in shape.values}

    def _other_shape(self, line: bytes) -> tuple[_Shape, re.Match[bytes]] | None:
        """The shape of a line that is not of the last one, which becomes the last."""
        shapes = [shape for shape in self._shapes if shape is not self._last]
        shape = next((shape for shape in shapes if shape.match(line)), None)
        if shape is None:
            line = cleaned(line)
            if len(self._shapes) == _MAX_SHAPES or (shape := self._shape_of(line)) is None:
                return None
            self._shapes.append(shape)
        if (found := shape.match(line)) is None:
            return None
        self._last = shape
        return shape, found

    def _shape_of(self, line: bytes) -> _Shape | None:
        """The shape of a line of which none is known yet; None: a value is missing or double."""
        head = self._head.match(line)
        texts = [] if head is None else line[head.end() :].rstrip(b", \r\n").split(_SEPARATOR)
        if not texts or len(texts) > _MAX_PIECES:
            return None
        known: list[Piece] = []
        unknown: list[str] = []
        patterns: list[bytes] = []
        for text in texts:
            piece = next((piece for expr, piece in self._table if expr.fullmatch(text)), None)
            if piece is None:
                words, colon, _ = text.partition(b":")
                unknown.append(words.decode(errors="replace")[:_MAX_WORDS])
                patterns.append(re.escape(words + colon) + _ANY_VALUE)
                continue
            if piece.continues and known and known[-1].is_list:
                piece = known[-1]._replace(pattern=piece.pattern)
            known.append(piece)
            patterns.append(piece.pattern)
        if not self._is_whole(known, patterns):
            return None
        expression = self._head_text + _SEPARATOR.join(patterns) + rb"[, ]{0,3}\r?\Z"
        values = tuple(
            (piece.name, piece.converter, self._num_head + place)
            for place, piece in enumerate(known)
        )
        lists = frozenset(piece.name for piece in known if piece.is_list)
        return _Shape(re.compile(expression).match, values, tuple(unknown), lists)

    def _is_whole(self, known: Sequence[Piece], patterns: Sequence[bytes]) -> bool:
        """Whether the needed values are there, none is double, and no known one is damaged."""
        names = [piece.name for piece in known if not piece.is_list]
        words = [each.removesuffix(_ANY_VALUE) for each in patterns if each.endswith(_ANY_VALUE)]
        damaged = any(piece.pattern.startswith(each) for each in words for _, piece in self._table)
        return self._needed <= set(names) and len(set(names)) == len(names) and not damaged


def _with_lists(shape: _Shape, groups: Sequence[bytes]) -> dict[str, FieldValue]:
    """The fields, of which some have all numbers that come under their name."""
    fields: dict[str, FieldValue] = {}
    for name, make, at in shape.values:
        if name in shape.lists:
            earlier = fields.get(name)
            numbers = earlier if isinstance(earlier, tuple) else ()
            fields[name] = (*numbers, float(groups[at]))
        else:
            fields[name] = make(groups[at])
    return fields

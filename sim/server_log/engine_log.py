"""What the readers of all engines' logs have in common; a family's reader derives from it.

Many lines are a list of values: `#new-seq: 1, #new-token: 7, token usage: 0.00`. A server writes
lines of few shapes. The first line of a shape is taken to pieces, which a table knows; from then on
one regular expression reads it whole. It has no repeats but those of single values, so that a line
is read in linear time.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sim.server_log.python_text import LogFormatError, SkippedText, read_value
from sim.server_log.records import NO_RANK, FieldValue, Kind, LogEvent, LoggedServer, Rank
from sim.server_log.text_lines import LineTimes, cleaned

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


# What a line is: an event, or a line of that kind without one; None: it is damaged.
Taken = LogEvent | Kind | None
# A longer line of settings is not one.
_MAX_SETTINGS_BYTES = 1 << 20
# uvicorn's access log, the same in both engines; SGLang puts its time before it.
_HTTP_MARK = b"INFO: "
_HTTP = re.compile(rb' {0,8}\S{1,100} - "([A-Z]{1,10}) ([^ "]{1,4000}) HTTP/[\d.]{1,3}" (\d{3}) ')
_HTTP_TIME = re.compile(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,](\d{3}))?\] \Z")
_MAX_PATH = 300


class EngineLog:
    """Reads the lines of one engine's log.

    A line is searched for `marks` first, in their order, and only then taken to pieces: nearly all
    lines of a log have one of the first marks or none.

    Attributes:
        server: what the lines so far say about the server.
        times: how lines are timed.
        num_starts: how often the server was started; `server` is what the last start says.
        has_served: whether there were events of batches or statistics since then.
        marks: bytes that tell a kind of line, each with what reads such a line.
        tables: the tables of values that are used for it.
    """

    def __init__(self, engine: str) -> None:
        self.server = LoggedServer(engine)
        self.times = LineTimes()
        self.num_starts = 0
        self.has_served = False
        self._ranks: dict[bytes, Rank] = {}
        self.marks: Sequence[tuple[bytes, Callable[[int, bytes], Taken]]] = ()
        self.tables: Sequence[Pieces] = ()

    def read(self, number: int, line: bytes) -> Taken:
        for mark, take in self.marks:
            if mark in line:
                return take(number, line)
        return Kind.OTHER

    @property
    def is_recognised(self) -> bool:
        """Whether a line so far was this engine's beyond doubt."""
        return bool(self.num_starts or self.has_served or self.server.kv_pool.num_tokens)

    @property
    def unknown(self) -> Counter[str]:
        """Lines with a value that is not known, by what the value is called."""
        return sum((table.unknown for table in self.tables), Counter())

    def take_http(self, number: int, line: bytes) -> Taken:
        before, _, rest = cleaned(line).partition(_HTTP_MARK)
        if (found := _HTTP.match(rest)) is None:
            return Kind.OTHER
        method, path, status = found.groups()
        fields: dict[str, FieldValue] = {
            "method": method.decode(),
            "path": path[:_MAX_PATH].decode(errors="replace").partition("?")[0],
            "status": int(status),
        }
        place = max(0, before.rfind(b"["))
        second, fraction = b"", None
        if (own := _HTTP_TIME.match(before, place)) is not None:
            before, (second, fraction) = before[:place], own.groups()
        return LogEvent(
            Kind.HTTP, number, self.times.at_us(before, second, fraction), NO_RANK, fields
        )

    def take_flags(self, number: int, text: bytes, source: str, *, has_all: bool) -> Taken:
        """Take the value of all flags, which begins another start of the server, or says it again.

        A server of several nodes or front ends writes them several times before it serves.
        """
        if (values := read_settings(cleaned(text))) is None:
            return None
        if self.num_starts == 0 or self.has_served or values != self.server.flags:
            self.num_starts += 1
            # vLLM's banner, with its version, comes before its flags.
            self.server = LoggedServer(self.server.engine, self.server.version)
        self.has_served = False
        self.server.flags = values
        self.server.has_all_flags = has_all
        self.server.flags_from = f"{source}, line {number}"
        return Kind.SETTINGS


def read_settings(text: bytes) -> dict[str, object] | None:
    """Settings written as Python writes a dictionary or a dataclass; None: they are damaged.

    Values that are no plain Python values keep their text.
    """
    if len(text) > _MAX_SETTINGS_BYTES:
        return None
    try:
        value, _ = read_value(text.decode(errors="replace"), 0)
    except LogFormatError:
        return None
    fields = getattr(value, "fields", value)
    if not isinstance(fields, dict):
        return None
    return {str(key): plain(each) for key, each in fields.items()}


def plain(value: object) -> object:
    """A value of dictionaries, lists, texts and numbers only."""
    if isinstance(value, SkippedText):
        return value.text.strip()
    fields = getattr(value, "fields", value)
    if isinstance(fields, Mapping):
        return {str(key): plain(each) for key, each in fields.items()}
    if isinstance(fields, list):
        return [plain(each) for each in fields]
    return fields


def whole_numbers(value: object) -> tuple[int, ...]:
    """The numbers of a list in rising order; empty: it is no list of whole numbers."""
    if not isinstance(value, list) or not all(type(each) is int for each in value):
        return ()
    return tuple(sorted(value))

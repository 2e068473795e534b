"""What the readers of all engines' logs have in common; a family's room `log/` derives from it."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from sim.server_log.line_times import LineTimes
from sim.server_log.pieces import Pieces
from sim.server_log.python_text import LogFormatError, SkippedText, read_value
from sim.server_log.records import NO_RANK, FieldValue, Kind, LogEvent, LoggedServer, Rank
from sim.server_log.text_lines import cleaned

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
        """What a line is; `number` is its number."""
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

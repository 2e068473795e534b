"""What SGLang writes of requests: with `--log-requests`, and with `--export-metrics-to-file`.

Format of SGLang 0.5.23 (`sglang/srt/utils/request_logger.py`). A line begins with a time such as
`[2026-01-31 12:00:00] `. In a text log `Receive: obj=GenerateReqInput(...)` or `Finish: obj=...,
out={...}` follows. In a json log a JSON object follows, with `timestamp`, `event`
(`request.received` or `request.finished`), `rid`, `obj` and `out`. 0.5.3 writes text only.

Log levels 0 and 1 leave out the prompts, level 2 cuts them after 2048 characters or tokens, level 3
has them whole. Level 0 also leaves out the limits on output tokens. A request arrives when the
server receives it. All other lines of the log are skipped.

An export has a JSON object for each request that ended (`sglang/srt/observability/
request_metrics_exporter.py`): the keys of `meta_info`, and `request_parameters`, a text that is
itself a JSON object: the fields of `GenerateReqInput` that are not empty. The folder has a file for
each hour, `sglang-request-metrics-20261127_09.log`. Times need `--enable-metrics`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from sim.core.errors import InputError
from sim.core.units import MAX_TIME_NS, NS_PER_S
from sim.server_log.python_text import LogFormatError, LoggedDataclass, read_value
from sim.sglang.results.request import (
    BadRecordError,
    LoggedRequest,
    ReceivedRequest,
    finished,
    is_health_check,
    unfinished,
)
from sim.workload.results.known_prompts import with_known_texts
from sim.workload.results.model import ImportedRequest, ImportedRun, ServerFacts
from sim.workload.traces.files import TextLine, parse_object, read_json_lines, read_lines
from sim.workload.traces.rows import shown

RECEIVED, FINISHED = "request.received", "request.finished"
_TEXT_EVENTS = {"Receive: obj=": RECEIVED, "Finish: obj=": FINISHED}
_JSON_EVENT = '"event": "request.'
# Time zones differ by multiples of 15 minutes.
_ZONE_NS = 900 * NS_PER_S
_STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Event(NamedTuple):
    """One line about a request.

    Attributes:
        kind: `RECEIVED` or `FINISHED`.
        rid, obj, out: the values that the line has under these names.
        at_ns: the time of the line, by the log's own clock.
        in_whole_seconds: `at_ns` is known to the second only.
    """

    line: TextLine
    kind: str
    rid: object
    obj: Mapping[str, object]
    out: Mapping[str, object]
    at_ns: int
    in_whole_seconds: bool


def is_event(text: str) -> bool:
    """Whether a line is about a request."""
    return _JSON_EVENT in text or any(mark in text for mark in _TEXT_EVENTS)


def read_sglang_log(path: Path) -> ImportedRun:
    """Read all requests; a request that was received but never finished counts as failed.

    Raises InputError: the file cannot be read, a line is cut off, or a request has no time.
    """
    log = _Log()
    for event in _events(path):
        if event.kind == RECEIVED:
            log.receive(event)
        else:
            log.finish(event)
    requests, notes = log.requests()
    if not requests:
        raise InputError(f"{path}: holds no results")
    return ImportedRun(requests, ServerFacts(("sglang",)), tuple(notes), tuple(log.left_out))


class _Log:
    """The requests of the lines read so far."""

    def __init__(self) -> None:
        self.left_out: list[str] = []
        self._num_health_checks = 0
        self._received: dict[str, ReceivedRequest] = {}
        self._finished: dict[str, int] = {}
        self._imported: list[LoggedRequest] = []
        self._clock_offsets_ns: list[int] = []

    def requests(self) -> tuple[list[ImportedRequest], list[str]]:
        """All requests, and notes for the user.

        Requests come in the order in which they finished; those that never finished come last.
        """
        lost = [one for rid, one in self._received.items() if rid not in self._finished]
        to_the_second = [received.rid for received in lost if received.in_whole_seconds]
        for received in lost:
            self._imported.append(unfinished(received, "no line says that it finished"))
        notes = []
        if to_the_second:
            rids = ", ".join(to_the_second)
            notes.append(f"the arrivals of failed requests are known to the second only: {rids}")
        if self._num_health_checks:
            notes.append(f"{self._num_health_checks} health checks are left out")
        requests = with_known_texts(
            [self._on_one_clock(one) for one in self._imported],
            [one.text for one in self._imported],
        )
        unknown = sum(request.prompt_ids is None for request in requests)
        if unknown:
            notes.append(
                f"{unknown} prompts are not in the log: it is assumed that they share no prefix"
            )
        cut = sum(
            request.prompt_ids is not None
            and len(request.prompt_ids.ids) < (request.prompt_tokens or 0)
            for request in requests
        )
        if cut:
            notes.append(f"{cut} prompts are cut in the log: only their logged parts can be shared")
        return requests, notes

    def receive(self, event: _Event) -> None:
        rids = event.rid if isinstance(event.rid, list) else [event.rid]
        for rid in rids:
            if not isinstance(rid, str):
                raise event.line.error("rid", f"{shown(rid)} is not a request id")
            if not is_health_check(event.obj, rid):
                obj = event.obj if len(rids) == 1 else {}
                self._received[rid] = ReceivedRequest(rid, obj, event.at_ns, event.in_whole_seconds)

    def finish(self, event: _Event) -> None:
        rid = event.rid
        if not isinstance(rid, str):
            raise event.line.error("rid", f"{shown(rid)} is not a request id")
        if is_health_check(event.obj, rid):
            self._num_health_checks += 1
            return
        if rid in self._finished:
            first = self._finished[rid]
            raise event.line.error("rid", f"{shown(rid)} already finished on line {first}")
        self._finished[rid] = event.line.number
        received = self._received.get(rid)
        request = ReceivedRequest(rid, event.obj, None) if received is None else received
        try:
            imported = finished(
                request._replace(obj=event.obj),
                event.out,
                None if event.in_whole_seconds else event.at_ns,
            )
        except BadRecordError as error:
            key, reason = error.args
            raise event.line.error(key, reason) from None
        if received is not None and received.at_ns is not None and not imported.by_log:
            self._clock_offsets_ns.append(imported.request.arrival_ns - received.at_ns)
        self._imported.append(imported)

    def _on_one_clock(self, imported: LoggedRequest) -> ImportedRequest:
        """The request with times by the server's clock.

        The difference between the clocks is known if some requests have times by both.
        """
        request = imported.request
        if not imported.by_log or not self._clock_offsets_ns:
            return request
        offset_ns = self._clock_offset_ns()
        return replace(
            request,
            arrival_ns=request.arrival_ns + offset_ns,
            finish_ns=None if request.finish_ns is None else request.finish_ns + offset_ns,
        )

    def _clock_offset_ns(self) -> int:
        """What to add to the log's local time to get the server's time: the time zone."""
        typical = sorted(self._clock_offsets_ns)[len(self._clock_offsets_ns) // 2]
        return round(typical / _ZONE_NS) * _ZONE_NS


def _events(path: Path) -> Iterator[_Event]:
    for line in read_lines(path):
        event = _json_event(line) if _JSON_EVENT in line.text else _text_event(line)
        if event is not None:
            yield event


def _json_event(line: TextLine) -> _Event | None:
    # A line without an object is refused as a whole.
    start = max(line.text.find("{"), 0)
    row = parse_object(line._replace(text=line.text[start:]))
    kind = row.get("event")
    if kind not in {RECEIVED, FINISHED}:
        return None
    obj = _object(line, "obj", row.get("obj"))
    out = _object(line, "out", row.get("out", {}))
    at_ns = _stamp_ns(line, "timestamp", row.get("timestamp"))
    return _Event(line, str(kind), row.get("rid"), obj, out, at_ns, in_whole_seconds=False)


def _object(line: TextLine, key: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise line.error(key, f"{shown(value)} is not an object")
    return value


def _text_event(line: TextLine) -> _Event | None:
    mark = next((mark for mark in _TEXT_EVENTS if mark in line.text), None)
    if mark is None:
        return None
    place = line.text.index(mark)
    try:
        obj, end = read_value(line.text, place + len(mark))
        out = _out(line.text, end)
    except LogFormatError as error:
        raise InputError(
            f"{line.path}:{line.number}: cut off, or not from SGLang's log: {error}"
        ) from None
    if not isinstance(obj, LoggedDataclass) or obj.name != "GenerateReqInput":
        return None
    stamp = _STAMP.search(line.text[:place])
    at_ns = _stamp_ns(line, "time", stamp[0] if stamp else line.text[:place])
    kind = _TEXT_EVENTS[mark]
    return _Event(line, kind, obj.fields.get("rid"), obj.fields, out, at_ns, in_whole_seconds=True)


def _out(text: str, at: int) -> Mapping[str, object]:
    """The value of `out=`, which follows an object, after `headers=` if the line has it."""
    for name in (", headers=", ", out="):
        if text.startswith(name, at):
            value, at = read_value(text, at + len(name))
            if name == ", out=" and isinstance(value, Mapping):
                return value
    return {}


def _stamp_ns(line: TextLine, key: str, value: object) -> int:
    """Nanoseconds since 1970 of a time without a zone, read as UTC."""
    try:
        moment = datetime.fromisoformat(str(value)).replace(tzinfo=UTC)
    except ValueError:
        raise line.error(key, f"{shown(value)} is not a date and time") from None
    passed = moment - _EPOCH
    stamp_ns = (passed.days * 86_400 + passed.seconds) * NS_PER_S + passed.microseconds * 1_000
    if not 0 <= stamp_ns <= MAX_TIME_NS:
        raise line.error(key, f"{shown(value)} is not between the years 1970 and 2116")
    return stamp_ns


_REQUEST, _RECEIVED = "request_parameters", "request_received_ts"


def find_exports(folder: Path) -> list[Path]:
    """The files of all hours, in their order."""
    return sorted(path for path in folder.glob("sglang-request-metrics-*.log") if path.is_file())


def read_sglang_export(path: Path) -> ImportedRun:
    """Read the requests of one file, or of all files in a folder.

    Raises InputError: a file cannot be read, a request has no lengths or times, or comes twice.
    """
    imported: dict[str, LoggedRequest] = {}
    for each in find_exports(path) if path.is_dir() else [path]:
        for line, row in read_json_lines(each):
            request = _request(line, row)
            if request is None:
                continue
            if (rid := request.request.rid) in imported:
                raise line.error("id", f"{shown(rid)} is of an earlier line, too")
            imported[rid] = request
    if not imported:
        raise InputError(f"{path}: holds no results")
    requests = with_known_texts(
        [one.request for one in imported.values()], [one.text for one in imported.values()]
    )
    unknown = sum(request.prompt_ids is None for request in requests)
    note = f"{unknown} prompts are not in the file: it is assumed that they share no prefix"
    return ImportedRun(requests, ServerFacts(("sglang",)), (note,) if unknown else ())


def _request(line: TextLine, row: dict[str, object]) -> LoggedRequest | None:
    """The request of a line; None: it is a health check."""
    rid, text = row.get("id"), row.get(_REQUEST)
    if not isinstance(rid, str):
        raise line.error("id", f"{shown(rid)} is not a request id")
    if not isinstance(text, str):
        raise line.error(_REQUEST, f"{shown(text)} is not a text")
    try:
        asked = parse_object(line._replace(text=text))
    except InputError:
        raise line.error(_REQUEST, "is no JSON object") from None
    if is_health_check(asked, rid):
        return None
    if row.get(_RECEIVED) is None:
        raise line.error(_RECEIVED, "missing: start the server with --enable-metrics, too")
    try:
        return finished(ReceivedRequest(rid, asked, None), {"meta_info": row}, None)
    except BadRecordError as error:
        key, reason = error.args
        raise line.error(key.removeprefix("meta_info."), reason) from None

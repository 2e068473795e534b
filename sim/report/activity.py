"""What servers did, step by step and request by request: read from a decision log or a run log."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from sim.core.errors import InputError
from sim.core.request import Status
from sim.runlog.json_lines import Line


class Kind(IntEnum):
    """What a request does in a span."""

    QUEUED = 0
    PREFILL = 1
    BETWEEN_CHUNKS = 2
    DECODE = 3
    PUT_BACK = 4


class Span(NamedTuple):
    """A part of a request's time; `tokens` are the prompt tokens that a prefill computes."""

    kind: Kind
    begin_ns: int
    end_ns: int
    tokens: int = 0


class StepRun(NamedTuple):
    """A step, or several decode steps in a row with the same rows. Counts are those of the last."""

    begin_ns: int
    end_ns: int
    mode: str
    num_steps: int
    prefill_rows: int
    prefill_tokens: int
    decode_rows: int
    context_tokens: int
    queue: int
    running: int
    used: int
    evictable: int
    free: int


@dataclass(slots=True)
class Request:
    """A request on its server; `spans` are in order of time and do not overlap."""

    rid: str
    status: str
    arrival_ns: int
    end_ns: int
    cached_tokens: int
    spans: list[Span] = field(default_factory=list)


@dataclass(slots=True)
class Server:
    """A server, or a rank of one."""

    replica: int
    rank: int | None
    steps: list[StepRun] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    @property
    def label(self) -> str:
        rank = "" if self.rank is None else f", rank {self.rank}"
        return f"server {self.replica}{rank}"


class _Event(NamedTuple):
    """Something that a step did to a request."""

    at_ns: int
    end_ns: int
    tokens: int
    is_prefill: bool


_Place = tuple[int, int | None]


def activity(lines: Iterable[Line]) -> list[Server]:
    """The servers of a log, by number. Lines are read one by one: a log may be longer than memory.

    Args:
        lines: steps and requests, as `decision_lines` gives them.
    """
    servers: dict[_Place, Server] = {}
    events: dict[str, list[_Event]] = {}
    crcs: dict[_Place, int | None] = {}
    requests = []
    log_end_ns = 0
    for line in lines:
        server = servers.setdefault(_place(line), Server(*_place(line)))
        if line["kind"] == "req":
            requests.append((server, line))
            continue
        _add_step(server.steps, line, crcs)
        log_end_ns = max(log_end_ns, line["t_end_ns"])
        for rid, event in _events(line):
            events.setdefault(rid, []).append(event)
    for server, line in requests:
        found = sorted(events.get(line["rid"], ()))
        server.requests.append(_request(line, found, log_end_ns))
    return [servers[place] for place in sorted(servers, key=_sortable)]


def within(servers: Iterable[Server], begin_ns: int, end_ns: int) -> list[Server]:
    """The servers with what they did in a part of the time.

    Raises:
        InputError: they did nothing then.
    """
    parts = [
        Server(
            server.replica,
            server.rank,
            [step for step in server.steps if step.begin_ns < end_ns and step.end_ns > begin_ns],
            [one for one in server.requests if one.arrival_ns < end_ns and one.end_ns > begin_ns],
        )
        for server in servers
    ]
    if not any(part.steps or part.requests for part in parts):
        raise InputError("nothing happens in this part of the log")
    return parts


def _place(line: Mapping[str, Any]) -> _Place:
    return line["replica"], line.get("rank")


def _sortable(place: _Place) -> tuple[int, int]:
    return place[0], -1 if place[1] is None else place[1]


def _add_step(runs: list[StepRun], line: Line, crcs: dict[_Place, int | None]) -> None:
    """Add a step; one that decodes the same rows as the step before becomes part of its run."""
    run = StepRun(
        begin_ns=line["t_start_ns"],
        end_ns=line["t_end_ns"],
        mode=line["mode"],
        num_steps=1,
        prefill_rows=len(line["prefill"]),
        prefill_tokens=sum(tokens for _, _, tokens in line["prefill"]),
        decode_rows=line.get("n_decode", 0),
        context_tokens=line.get("ctx", 0),
        queue=line.get("queue", 0),
        running=line.get("running", 0),
        used=line.get("used", 0),
        evictable=line.get("evictable", 0),
        free=line.get("free", 0),
    )
    place = _place(line)
    crc = line.get("decode_crc") if run.mode == "decode" else None
    if runs and crc is not None and crcs.get(place) == crc and runs[-1].queue == run.queue:
        first = runs.pop()
        run = run._replace(begin_ns=first.begin_ns, num_steps=first.num_steps + 1)
    crcs[place] = crc
    runs.append(run)


def _events(line: Line) -> Iterable[tuple[str, _Event]]:
    """Who is put back by a step, and who computes a part of a prompt in it."""
    decided_ns = line["t_decided_ns"]
    victims = [rid for _, others in line.get("preempted", ()) for rid in others]
    for rid in (*line.get("retracted", ()), *victims, *line.get("aborted", ())):
        yield rid, _Event(decided_ns, decided_ns, 0, is_prefill=False)
    for rid, _, tokens in line["prefill"]:
        yield rid, _Event(line["t_start_ns"], line["t_end_ns"], tokens, is_prefill=True)


def _request(line: Line, events: Sequence[_Event], log_end_ns: int) -> Request:
    arrival_ns, status = line["arrival_ns"], line["status"]
    end_ns = line.get("finish_ns")
    if end_ns is None:
        end_ns = log_end_ns
        if status == Status.REJECTED.value:
            end_ns = arrival_ns
        elif status == Status.ABORTED.value and events:
            end_ns = events[-1].at_ns
    request = Request(
        line["rid"], status, arrival_ns, max(end_ns, arrival_ns), line.get("cached_at_admit") or 0
    )
    request.spans = _spans(request, events)
    return request


def _spans(request: Request, events: Sequence[_Event]) -> list[Span]:
    """A request waits, computes chunks of its prompt, decodes, and may be put back to wait."""
    spans: list[Span] = []
    now_ns, state = request.arrival_ns, Kind.QUEUED

    def until(at_ns: int, kind: Kind, tokens: int = 0) -> None:
        nonlocal now_ns
        at_ns = min(at_ns, request.end_ns)
        if at_ns > now_ns:
            spans.append(Span(kind, now_ns, at_ns, tokens))
            now_ns = at_ns

    for event in events:
        if event.is_prefill:
            until(event.at_ns, Kind.BETWEEN_CHUNKS if state is Kind.DECODE else state)
            until(event.end_ns, Kind.PREFILL, event.tokens)
            state = Kind.DECODE
        else:
            until(event.at_ns, state)
            state = Kind.PUT_BACK
    until(request.end_ns, state)
    return spans

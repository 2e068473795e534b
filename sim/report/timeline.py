"""A log as a page to zoom into: what each server and each request did, step by step."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from html import escape
from typing import Any, NamedTuple

from sim import __version__
from sim.core.errors import InputError
from sim.core.packed import Line
from sim.core.request import Status
from sim.core.units import NS_PER_S
from sim.report.document import data_script, document, page_file
from sim.tables.table import counted, number


class SpanKind(IntEnum):
    """What a request does in a span."""

    QUEUED = 0
    PREFILL = 1
    BETWEEN_CHUNKS = 2
    DECODE = 3
    PUT_BACK = 4
    TRANSFER = 5


class RequestSpan(NamedTuple):
    """A part of a request's time; `tokens` are the prompt tokens that a prefill computes."""

    kind: SpanKind
    begin_ns: int
    end_ns: int
    tokens: int = 0


class StepSpan(NamedTuple):
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
class RequestActivity:
    """A request on its server; `spans` are in order of time and do not overlap."""

    rid: str
    status: str
    arrival_ns: int
    end_ns: int
    cached_tokens: int
    spans: list[RequestSpan] = field(default_factory=list)


@dataclass(slots=True)
class ServerActivity:
    """A server, or a rank of one."""

    replica: int
    rank: int | None
    pool: str = ""
    steps: list[StepSpan] = field(default_factory=list)
    requests: list[RequestActivity] = field(default_factory=list)

    @property
    def label(self) -> str:
        rank = "" if self.rank is None else f", rank {self.rank}"
        pool = f": {self.pool}" if self.pool else ""
        return f"server {self.replica}{rank}{pool}"


class _LogEvent(NamedTuple):
    """What a request does from `at_ns` on: a prefill until `end_ns`, if that is later; `then`."""

    at_ns: int
    end_ns: int
    tokens: int
    then: SpanKind


_Place = tuple[int, int | None]


def activity(lines: Iterable[Line]) -> list[ServerActivity]:
    """The servers of a log, by number, from its `decision_lines`, which are read one by one."""
    servers: dict[_Place, ServerActivity] = {}
    events: dict[str, list[_LogEvent]] = {}
    crcs: dict[_Place, int | None] = {}
    requests = []
    log_end_ns = 0
    for line in lines:
        server = servers.setdefault(_place(line), ServerActivity(*_place(line), _pool(line)))
        if line["kind"] == "req":
            requests.append((server, line))
            continue
        _add_step(server.steps, line, crcs)
        log_end_ns = max(log_end_ns, line["t_end_ns"])
        for rid, event in _events(line):
            events.setdefault(rid, []).append(event)
    for server, line in requests:
        found = sorted([*_in_handover(line, events.get(line["rid"], ())), *_handover(line)])
        request = _request(line, found, log_end_ns)
        server.requests.append(request)
        source = servers.get((line.get("prefill_replica", -1), None))
        if source is not None and source is not server:
            source.requests.append(_until_sent(request, line))
    return [servers[place] for place in sorted(servers, key=_sortable)]


def within(servers: Iterable[ServerActivity], begin_ns: int, end_ns: int) -> list[ServerActivity]:
    """The servers with what they did in a part of the time."""
    parts = [
        replace(
            server,
            steps=[
                step for step in server.steps if step.begin_ns < end_ns and step.end_ns > begin_ns
            ],
            requests=[
                one for one in server.requests if one.arrival_ns < end_ns and one.end_ns > begin_ns
            ],
        )
        for server in servers
    ]
    if not any(part.steps or part.requests for part in parts):
        raise InputError("nothing happens in this part of the log")
    return parts


def _place(line: Mapping[str, Any]) -> _Place:
    return line["replica"], line.get("rank")


def _pool(line: Mapping[str, Any]) -> str:
    """The pool of a line's server, with its role if the name does not say it."""
    name, role = line.get("pool", ""), line.get("role", "")
    return name if role in {"", "both", name} else f"{name} ({role})"


def _in_handover(line: Line, events: Iterable[_LogEvent]) -> Iterator[_LogEvent]:
    """A request's events. On its prefill server a request does not decode after a prefill."""
    computed_ns = line.get("computed_ns")
    for event in events:
        on_prefill_server = "prefill_replica" in line and (
            computed_ns is None or event.at_ns < computed_ns
        )
        is_chunk = on_prefill_server and event.then is SpanKind.DECODE
        yield event._replace(then=SpanKind.BETWEEN_CHUNKS) if is_chunk else event


def _handover(line: Line) -> Iterator[_LogEvent]:
    """What a request does between its prefill server's last step and its first token."""
    computed_ns, allocated_ns, received_ns = (
        line.get(key) for key in ("computed_ns", "allocated_ns", "received_ns")
    )
    if computed_ns is None:
        return
    has_memory = allocated_ns is not None and allocated_ns <= computed_ns
    yield _mark(computed_ns, SpanKind.TRANSFER if has_memory else SpanKind.QUEUED)
    if allocated_ns is not None and not has_memory:
        yield _mark(allocated_ns, SpanKind.TRANSFER)
    if received_ns is not None:
        yield _mark(received_ns, SpanKind.QUEUED)
    if line.get("ttft_ns") is not None:
        yield _mark(line["arrival_ns"] + line["ttft_ns"], SpanKind.DECODE)


def _mark(at_ns: int, then: SpanKind) -> _LogEvent:
    return _LogEvent(at_ns, at_ns, 0, then)


def _until_sent(request: RequestActivity, line: Line) -> RequestActivity:
    """The part of a request's time in which its prefill server had it."""
    sent_ns = line.get("received_ns")
    end_ns = request.end_ns if sent_ns is None else min(sent_ns, request.end_ns)
    spans = [span for span in request.spans if span.end_ns <= end_ns]
    return replace(request, end_ns=end_ns, spans=spans)


def _sortable(place: _Place) -> tuple[int, int]:
    return place[0], -1 if place[1] is None else place[1]


def _add_step(runs: list[StepSpan], line: Line, crcs: dict[_Place, int | None]) -> None:
    """Add a step; one that decodes the same rows as the step before becomes part of its run.

    `crcs`: by server, the checksum of the rows of its last step; None: that had prefill rows.
    """
    run = StepSpan(
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


def _events(line: Line) -> Iterable[tuple[str, _LogEvent]]:
    """The requests that a step puts back, and those of which it computes a part of the prompt."""
    decided_ns = line["t_decided_ns"]
    victims = [rid for _, others in line.get("preempted", ()) for rid in others]
    for rid in (*line.get("retracted", ()), *victims, *line.get("aborted", ())):
        yield rid, _mark(decided_ns, SpanKind.PUT_BACK)
    for rid, _, tokens in line["prefill"]:
        yield rid, _LogEvent(line["t_start_ns"], line["t_end_ns"], tokens, SpanKind.DECODE)


def _request(line: Line, events: Sequence[_LogEvent], log_end_ns: int) -> RequestActivity:
    arrival_ns, status = line["arrival_ns"], line["status"]
    end_ns = line.get("finish_ns")
    if end_ns is None:
        end_ns = log_end_ns
        if status == Status.REJECTED.value:
            end_ns = arrival_ns
        elif status == Status.ABORTED.value and events:
            end_ns = events[-1].at_ns
    request = RequestActivity(
        line["rid"], status, arrival_ns, max(end_ns, arrival_ns), line.get("cached_at_admit") or 0
    )
    request.spans = _spans(request, events)
    return request


def _spans(request: RequestActivity, events: Sequence[_LogEvent]) -> list[RequestSpan]:
    """A request waits, computes chunks of its prompt, decodes, and may be put back to wait."""
    spans: list[RequestSpan] = []
    now_ns, state = request.arrival_ns, SpanKind.QUEUED

    def until(at_ns: int, kind: SpanKind, tokens: int = 0) -> None:
        nonlocal now_ns
        at_ns = min(at_ns, request.end_ns)
        if at_ns > now_ns:
            spans.append(RequestSpan(kind, now_ns, at_ns, tokens))
            now_ns = at_ns

    for event in events:
        is_prefill = event.tokens > 0 or event.end_ns > event.at_ns
        between = is_prefill and state is SpanKind.DECODE
        until(event.at_ns, SpanKind.BETWEEN_CHUNKS if between else state)
        until(event.end_ns, SpanKind.PREFILL, event.tokens)
        state = event.then
    until(request.end_ns, state)
    return spans


MAX_REQUESTS = 2_000
MAX_STEPS = 20_000
# What the legend calls a span, with a class of the style sheet.
_LEGEND = {
    SpanKind.QUEUED: "waits in the queue",
    SpanKind.PREFILL: "prefill: a chunk of the prompt",
    SpanKind.BETWEEN_CHUNKS: "waits for its next chunk",
    SpanKind.DECODE: "decodes",
    SpanKind.PUT_BACK: "put back into the queue",
    SpanKind.TRANSFER: "its KV is on its way to the decode server",
}
# What every page explains; other kinds only if they occur.
_USUAL = frozenset(SpanKind) - {SpanKind.TRANSFER}
_SCRIPT = "timeline.js"


def timeline_page(name: str, servers: Sequence[ServerActivity]) -> str:
    """The whole page; the same log gives the same text.

    It has the first `MAX_REQUESTS` requests and the first `MAX_STEPS` steps, and says so.
    """
    # A request may have been on a prefill and on a decode server.
    num_requests = len({one.rid for server in servers for one in server.requests})
    num_steps = sum(step.num_steps for server in servers for step in server.steps)
    begin_ns, end_ns = _bounds(servers)
    times = f"{number(begin_ns / NS_PER_S)} s to {number(end_ns / NS_PER_S)} s"
    facts = (
        f"{counted(num_requests, 'request')}, {counted(num_steps, 'step')},"
        f" {counted(len(servers), 'server')}: {times}."
    )
    shown, left_out = _limited(servers)
    kinds = {
        span.kind for server in shown for one in server.requests for span in one.spans
    }  # fmt: skip
    legend = "".join(
        f'<li><span class="key kind-{kind.value}"></span>{escape(text)}</li>'
        for kind, text in _LEGEND.items()
        if kind in kinds | _USUAL
    )
    legend += '<li><span class="key mixed"></span>a step with prefill and decode</li>'
    data = {"begin_ns": begin_ns, "end_ns": end_ns, "servers": [_plain(each) for each in shown]}
    body = f"""\
<h1>{escape(name)}</h1>
<p class="facts">{escape(facts)}{escape(left_out)}</p>
<noscript><p class="bad">This page is drawn by its script.</p></noscript>
<div class="tools" id="tools"></div>
<ul class="legend">{legend}</ul>
<p class="facts">Drag over a part to enlarge it; a double click shows the whole. Ctrl and the wheel,
the keys + and &minus; zoom; the arrow keys move.</p>
<h2>Steps</h2>
<canvas id="steps" tabindex="0" aria-label="steps, queue and KV pool over time"></canvas>
<h2>Requests, in order of arrival</h2>
<div id="lanes"><div id="height">
<canvas id="requests" aria-label="requests over time"></canvas>
</div></div>
<div id="tip" role="status" hidden></div>
<footer>Drawn by servetwin {escape(__version__)}.</footer>
{data_script(data)}
<script>{page_file(_SCRIPT)}</script>"""
    style = page_file("report.css") + page_file("timeline.css")
    return document(name, body, style=style, scripts=(page_file(_SCRIPT).encode(),))


def _bounds(servers: Sequence[ServerActivity]) -> tuple[int, int]:
    steps = [step for server in servers for step in server.steps]
    requests = [request for server in servers for request in server.requests]
    begins = [step.begin_ns for step in steps] + [one.arrival_ns for one in requests]
    ends = [step.end_ns for step in steps] + [one.end_ns for one in requests]
    return min(begins, default=0), max(ends, default=0)


def _limited(servers: Sequence[ServerActivity]) -> tuple[list[ServerActivity], str]:
    """The servers with as much as a page can show, and a sentence about what is left out."""
    left_out = ""
    arrivals = sorted(one.arrival_ns for server in servers for one in server.requests)
    begins = sorted(step.begin_ns for server in servers for step in server.steps)
    last_arrival = arrivals[MAX_REQUESTS - 1] if len(arrivals) > MAX_REQUESTS else None
    last_begin = begins[MAX_STEPS - 1] if len(begins) > MAX_STEPS else None
    if last_arrival is not None:
        left_out += f" Requests that arrived after {number(last_arrival / NS_PER_S)} s"
    if last_begin is not None:
        left_out += " and steps" if left_out else " Steps"
        left_out += f" after {number(last_begin / NS_PER_S)} s"
    if left_out:
        left_out += " are left out: --begin and --end choose another part."
    shown = [
        replace(
            server,
            steps=[step for step in server.steps
                   if last_begin is None or step.begin_ns <= last_begin],
            requests=[one for one in server.requests
                      if last_arrival is None or one.arrival_ns <= last_arrival],
        )
        for server in servers
    ]  # fmt: skip
    return shown, left_out


def _plain(server: ServerActivity) -> dict[str, object]:
    requests = [
        [one.rid, one.status, one.arrival_ns, one.end_ns, one.cached_tokens, one.spans]
        for one in sorted(server.requests, key=lambda one: one.arrival_ns)
    ]
    return {"label": server.label, "steps": server.steps, "requests": requests}

"""A log as a page to zoom into: what each server and each request did, over time."""

from collections.abc import Sequence
from dataclasses import replace
from html import escape

from sim import __version__
from sim.core.units import NS_PER_S
from sim.report.activity import ServerActivity, SpanKind
from sim.report.document import data_script, document, page_file
from sim.tables.text import counted, number

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

"""A log as Chrome trace events, for ui.perfetto.dev: steps, counters, and spans of requests."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from sim.report.activity import RequestActivity, ServerActivity, SpanKind, StepSpan
from sim.report.perfetto import NS_PER_US, Event, Timed, write_trace

_STEP_TRACK = 1
_NAMES = {
    SpanKind.QUEUED: "queued",
    SpanKind.PREFILL: "prefill",
    SpanKind.BETWEEN_CHUNKS: "between chunks",
    SpanKind.DECODE: "decode",
    SpanKind.PUT_BACK: "put back",
    SpanKind.TRANSFER: "transfer",
}


def write_activity(name: str, servers: Sequence[ServerActivity], path: Path) -> None:
    """Write a trace; compressed if the name ends in .gz.

    A server is a process: its steps are slices on a track, its queue, running requests and KV
    tokens are counters, and each of its requests is an async slice with a slice for each span.

    Raises:
        InputError: the file cannot be written.
    """
    requests = len({one.rid for server in servers for one in server.requests})
    names = [event for pid, server in enumerate(servers) for event in _names(pid, server)]
    streams: list[Iterator[Timed] | list[Timed]] = []
    for pid, server in enumerate(servers):
        streams.append(_steps(pid, server.steps))
        found = [timed for row, one in enumerate(server.requests) for timed in _one(pid, row, one)]
        # The sort is stable: events at the same time keep their order, so slices stay nested.
        streams.append(sorted(found, key=lambda timed: timed.ts_ns))
    write_trace(path, {"name": name, "requests": requests}, names, *streams)


def _names(pid: int, server: ServerActivity) -> Iterator[Event]:
    process, thread = {"name": server.label}, {"name": "device steps"}
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": process}
    yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": _STEP_TRACK, "args": thread}


def _steps(pid: int, steps: Sequence[StepSpan]) -> Iterator[Timed]:
    for step in sorted(steps):
        args = {"steps": step.num_steps, "prefill_rows": step.prefill_rows,
                "prefill_tokens": step.prefill_tokens, "decode_rows": step.decode_rows,
                "ctx": step.context_tokens}  # fmt: skip
        length_us = (step.end_ns - step.begin_ns) / NS_PER_US
        place = {"pid": pid, "tid": _STEP_TRACK}
        slice_ = {"ph": "X", "name": step.mode, "cat": "step", **place, "dur": length_us}
        yield Timed(step.begin_ns, {**slice_, "args": args})
        kv = {"used": step.used, "evictable": step.evictable, "free": step.free}
        counters = {"queue": {"requests": step.queue}, "running": {"requests": step.running}}
        for name, values in (*counters.items(), ("KV tokens", kv)):
            yield Timed(step.begin_ns, {"ph": "C", "name": name, "pid": pid, "args": values})


def _one(pid: int, row: int, one: RequestActivity) -> Iterator[Timed]:
    common = {"cat": "request", "id": f"{pid}.{row}", "pid": pid, "tid": 0}
    args = {"status": one.status, "cached_tokens": one.cached_tokens}
    yield Timed(one.arrival_ns, {"ph": "b", "name": one.rid, "args": args, **common})
    for span in one.spans:
        name = _NAMES[span.kind]
        tokens = {"args": {"tokens": span.tokens}} if span.tokens else {}
        yield Timed(span.begin_ns, {"ph": "b", "name": name, **tokens, **common})
        yield Timed(span.end_ns, {"ph": "e", "name": name, **common})
    yield Timed(one.end_ns, {"ph": "e", "name": one.rid, **common})

"""A run, or a log, as Chrome trace events for ui.perfetto.dev: steps, counters and requests."""

import heapq
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sim.core.batch import ForwardMode
from sim.core.packed import open_text
from sim.core.request import Status
from sim.metrics.rates import log_end_ns
from sim.report.timeline import RequestActivity, ServerActivity, SpanKind, StepSpan
from sim.runlog import NOT_YET_NS, RunLog

MAX_REQUESTS = 2_000

_STEP_TRACK = 1
NS_PER_US = 1_000
_STEP_COLUMNS = (
    "replica", "t_start_ns", "t_end_ns", "mode", "num_steps", "num_prefill_tokens",
    "num_cached_tokens", "num_prefill_rows", "num_decode_rows", "num_context_tokens", "queue",
    "running", "used_tokens", "evictable_tokens", "free_tokens",
)  # fmt: skip

Event = dict[str, Any]


class Timed(NamedTuple):
    """An event and its time."""

    ts_ns: int
    event: Event


def write_perfetto(log: RunLog, path: Path, *, max_requests: int = MAX_REQUESTS) -> None:
    """Write a trace; compressed if the name ends in .gz.

    A replica, or each of its ranks, is a process. Its steps are slices on one track (a run of
    decode steps with the same rows is one slice), or on as many as a pipeline may have in flight.
    Its queue, running requests and KV tokens are counters. The first `max_requests` requests to
    arrive are async slices, each with a slice for queued, prefill and decode; `otherData` has their
    number and the number of all requests. Events are ordered by `ts`.
    """
    order = np.argsort(log.requests.arrival_ns, kind="stable")[:max_requests]
    other_data = {
        "name": str(log.meta.get("name", "run")),
        "requests_shown": len(order),
        "requests_total": len(log.requests.rid),
    }
    write_trace(
        path,
        other_data,
        _process_names(log),
        _step_events(log),
        _request_events(log, order.tolist()),
    )


def write_trace(
    path: Path, other_data: Mapping[str, Any], names: Iterable[Event], *streams: Iterable[Timed]
) -> None:
    """Write a trace; compressed if the name ends in .gz.

    `other_data` are facts about the whole trace, `names` events that name processes and tracks;
    each stream is in order of time.
    """
    with open_text(path) as file:
        file.write(f'{{"displayTimeUnit":"ms","otherData":{json.dumps(other_data)},"traceEvents":[')
        separator = "\n"
        for event in names:
            file.write(separator + json.dumps(event, separators=(",", ":")))
            separator = ",\n"
        for ts_ns, event in heapq.merge(*streams, key=lambda timed: timed.ts_ns):
            event["ts"] = ts_ns / NS_PER_US
            file.write(separator + json.dumps(event, separators=(",", ":")))
            separator = ",\n"
        file.write("\n]}\n")


def _process_names(log: RunLog) -> Iterator[Event]:
    replicas = np.union1d(log.steps.replica, log.requests.replica)
    if log.handovers is not None:
        found = log.handovers.prefill_replica
        replicas = np.union1d(replicas, found[found >= 0])
    for replica in replicas.tolist():
        name = {"name": _process_name(log, replica)}
        yield {"ph": "M", "name": "process_name", "pid": replica, "tid": 0, "args": name}
        for number in range(log.micro_batches(replica)):
            args = {"name": "device steps" + f" {number + 1}" * (number > 0)}
            tid = _STEP_TRACK + number
            yield {"ph": "M", "name": "thread_name", "pid": replica, "tid": tid, "args": args}


def _process_name(log: RunLog, number: int) -> str:
    replica, rank = log.place(number)
    name = f"replica {replica}" if log.num_ranks == 1 else f"replica {replica} rank {rank}"
    pool = log.pool_of(number)
    return name if pool is None else f"{name}: {pool.title}"


def _step_events(log: RunLog) -> Iterator[Timed]:
    num_steps: Counter[int] = Counter()
    num_tracks = {
        server: log.micro_batches(server) for server in np.unique(log.steps.replica).tolist()
    }
    order = np.argsort(log.steps.t_start_ns, kind="stable")
    columns = [getattr(log.steps, name)[order].tolist() for name in _STEP_COLUMNS]
    for values in zip(*columns, strict=True):
        run = dict(zip(_STEP_COLUMNS, values, strict=True))
        replica, times_ns = run["replica"], (run["t_start_ns"], run["t_end_ns"])
        args = {
            "steps": run["num_steps"],
            "prefill_rows": run["num_prefill_rows"],
            "decode_rows": run["num_decode_rows"],
            "prefill_tokens": run["num_prefill_tokens"],
            "cached_tokens": run["num_cached_tokens"],
            "ctx": run["num_context_tokens"],
        }
        mode = ForwardMode(run["mode"]).name.lower()
        yield _slice(replica, num_steps[replica] % num_tracks[replica], mode, times_ns, args)
        num_steps[replica] += 1
        kv = {name: run[f"{name}_tokens"] for name in ("used", "evictable", "free")}
        yield from _counters(replica, times_ns[0], run["queue"], run["running"], kv)


def _slice(pid: int, track: int, mode: str, begin_end_ns: tuple[int, int], args: Event) -> Timed:
    """A step, or a run of steps, on a track of a server."""
    begin_ns, end_ns = begin_end_ns
    event = {"ph": "X", "name": mode, "cat": "step", "pid": pid, "tid": _STEP_TRACK + track,
             "dur": (end_ns - begin_ns) / NS_PER_US, "args": args}  # fmt: skip
    return Timed(begin_ns, event)


def _counters(pid: int, at_ns: int, queue: int, running: int, kv: Event) -> Iterator[Timed]:
    """The values of a server's counters from a time on."""
    counters = {"queue": {"requests": queue}, "running": {"requests": running}, "KV tokens": kv}
    for name, values in counters.items():
        yield Timed(at_ns, {"ph": "C", "name": name, "pid": pid, "args": values})


def _request_events(log: RunLog, rows: list[int]) -> list[Timed]:
    """Begin and end events of the requests' slices: those of the phases inside the request's."""
    end_ns = log_end_ns(log)
    events = [timed for row in rows for timed in _one_request(log, row, end_ns)]
    # The sort is stable: events at the same time keep their order, so slices stay nested.
    return sorted(events, key=lambda timed: timed.ts_ns)


def _one_request(log: RunLog, row: int, log_ends_ns: int) -> Iterator[Timed]:
    requests = log.requests
    args = {
        "status": requests.status[row],
        "tenant": requests.tenant[row],
        **{
            name: int(getattr(requests, name)[row])
            for name in ("prompt_tokens", "cached_tokens", "output_tokens", "retractions",
                         "preemptions", "priority")
        },
    }  # fmt: skip
    phases = _phases(log, row)
    arrival_ns, finish_ns = phases[0][1], int(requests.finish_ns[row])
    if finish_ns == NOT_YET_NS:
        # Rejected on arrival, or cut off by the log's end.
        is_rejected = requests.status[row] == Status.REJECTED.value
        finish_ns = arrival_ns if is_rejected else log_ends_ns
    common = {"cat": "request", "id": str(row), "pid": int(requests.replica[row]), "tid": 0}
    yield Timed(arrival_ns, {"ph": "b", "name": requests.rid[row], "args": args, **common})
    stamps = [begin_ns for _, begin_ns in phases]
    for number, (name, begin_ns) in enumerate(phases):
        if begin_ns == NOT_YET_NS:
            continue
        later = stamps[number + 1 :]
        done_ns = next((stamp for stamp in later if stamp != NOT_YET_NS), finish_ns)
        yield Timed(begin_ns, {"ph": "b", "name": name, **common})
        yield Timed(done_ns, {"ph": "e", "name": name, **common})
    yield Timed(finish_ns, {"ph": "e", "name": requests.rid[row], **common})


def _phases(log: RunLog, row: int) -> list[tuple[str, int]]:
    """What a request does, in order, and when that begins."""
    requests, handovers = log.requests, log.handovers
    arrival_ns, scheduled_ns, first_ns = (
        int(column[row])
        for column in (requests.arrival_ns, requests.scheduled_ns, requests.first_token_ns)
    )
    begun = [("queued", arrival_ns), ("prefill", scheduled_ns)]
    if handovers is not None:
        allocated_ns, computed_ns, received_ns = (
            int(column[row])
            for column in (handovers.allocated_ns, handovers.computed_ns, handovers.received_ns)
        )
        has_memory = allocated_ns != NOT_YET_NS
        if has_memory and allocated_ns <= computed_ns:
            begun.append(("transfer", computed_ns))
        else:
            begun += [("wait for memory", computed_ns), ("transfer", allocated_ns)]
        begun.append(("wait to decode", received_ns))
    return [*begun, ("decode", first_ns)]


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
        yield _slice(pid, 0, step.mode, (step.begin_ns, step.end_ns), args)
        kv = {"used": step.used, "evictable": step.evictable, "free": step.free}
        yield from _counters(pid, step.begin_ns, step.queue, step.running, kv)


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

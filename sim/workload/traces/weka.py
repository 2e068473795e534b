"""Weka's recorded coding-agent sessions: one JSON object for each session, with pauses of tools.

Published in callanjfox/kv-cache-tester ("Trace Replay Tester", section Trace Format), and as
SemiAnalysis's data sets `cc-traces-weka-*`, one session a line. As there, `think_time` is the time
that the client waited before a request: a tool ran, or a person read. A sub-agent is an entry with
requests of its own, for which its parent waits.

Deliberate difference: sub-agents of a session run one after the other, even where they overlapped.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sim.core.errors import InputError
from sim.core.units import NS_PER_S
from sim.workload import MAX_TOKENS
from sim.workload.traces.block_traces import MAX_HASH_ID, BlockColumn, hash_ids
from sim.workload.traces.files import NO_FILES, JsonObject, TextLine, read_json_items, trace_files
from sim.workload.traces.rows import (
    IntColumn,
    Sessions,
    TraceRows,
    left_out,
    require_rows,
    shown,
    time_ns,
    whole,
)

_SUB_AGENT = "subagent"
_LOCAL, _GLOBAL = "local", "global"


class _Call(NamedTuple):
    """A request of a session, its place in the file for messages, and the pause before it."""

    place: TextLine
    row: JsonObject
    pause_ns: int


class _CallColumns:
    """The requests of all sessions, which grow while files are read."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.pauses, self.outputs, self.offsets = IntColumn(), IntColumn(), IntColumn([0])
        self.prompts: BlockColumn | None = None
        self.sessions: list[str] = []
        self.num_empty = self.num_sub_agents = 0
        self._block_size = 0
        self._first_free_id = 0

    @property
    def is_full(self) -> bool:
        return self.limit is not None and len(self.outputs) >= self.limit

    def add_session(self, line: TextLine, session: JsonObject) -> None:
        prompts = self._prompts_of(line, session)
        scope = session.get("hash_id_scope", _LOCAL)
        if scope not in (_LOCAL, _GLOBAL):
            raise line.error("hash_id_scope", f"{shown(scope)} is neither {_LOCAL} nor {_GLOBAL}")
        first_id = self._first_free_id if scope == _LOCAL else 0
        name = str(len(self.offsets) - 1)
        for call in _calls(line, session):
            if self.is_full:
                break
            self._add_call(call, prompts, first_id, name)
        if len(self.outputs) > self.offsets.last:
            self.offsets.append(len(self.outputs))
        entries = (entry for _, entry in _entries(line, session))
        self.num_sub_agents += sum(entry.get("type") == _SUB_AGENT for entry in entries)

    def _add_call(self, call: _Call, prompts: BlockColumn, first_id: int, name: str) -> None:
        place, row = call.place, call.row
        num_input = whole(place, row, "in")
        num_output = whole(place, row, "out", low=0)
        ids = hash_ids(place, row) if "hash_ids" in row else []
        if len(ids) > -(-num_input // self._block_size):
            counts = f"{len(ids)} ids of {self._block_size} tokens, but {num_input} tokens in"
            raise place.error("hash_ids", counts)
        if ids:
            # Ids of scope `local` must differ from those of all sessions before.
            ids = [first_id + number for number in ids]
            self._first_free_id = max(self._first_free_id, max(ids) + 1)
        if self._first_free_id > MAX_HASH_ID:
            raise place.error("hash_ids", "all files together have ids above 2**40")
        if not num_output:
            self.num_empty += 1
            return
        # No pause comes before a session's first request: the session's own arrival is its time.
        is_first = len(self.outputs) == self.offsets.last
        self.pauses.append(0 if is_first else call.pause_ns)
        self.outputs.append(num_output)
        prompts.append(ids, num_input)
        self.sessions.append(name)

    def _prompts_of(self, line: TextLine, session: JsonObject) -> BlockColumn:
        size = whole(line, session, "block_size", high=MAX_TOKENS)
        if self.prompts is None:
            self._block_size, self.prompts = size, BlockColumn(size)
        if size != self._block_size:
            reason = f"{size}, but the sessions before have {self._block_size}"
            raise line.error("block_size", reason)
        return self.prompts


def read_weka(path: Path, *, limit: int | None) -> TraceRows:
    """Read the sessions of a file, or of all files in a folder, in the order of their names.

    Requests of a session are a closed loop: each is sent `think_time` after the answer to the one
    before. Where `think_time` is missing, the pause is the time between the two requests, less the
    `api_time` of the one before. Sessions have no times of their own.
    """
    columns = _CallColumns(limit)
    for file in _files(path):
        for line, session in read_json_items(file):
            columns.add_session(line, session)
            if columns.is_full:
                break
        if columns.is_full:
            break
    num_rows = len(columns.outputs)
    require_rows(num_rows, path)
    assert columns.prompts is not None  # noqa: S101 - there are rows
    notes = left_out(columns.num_empty, "no output")
    if columns.num_sub_agents:
        notes += (f"{columns.num_sub_agents:,} sub-agents run one after the other",)
    return TraceRows(
        arrival_ns=np.zeros(num_rows, dtype=np.int64),
        prompts=columns.prompts.prompts(),
        output_tokens=columns.outputs.to_numpy(),
        sessions=columns.sessions,
        has_times=False,
        closed_loop=Sessions(
            offsets=columns.offsets.to_numpy(),
            pause_ns=columns.pauses.to_numpy(),
            history_row=np.arange(num_rows),
        ),
        notes=notes,
    )


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    try:
        found = trace_files(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    if not found:
        raise InputError(f"{path}: {NO_FILES}")
    return found


def _calls(line: TextLine, session: JsonObject) -> Iterator[_Call]:
    """The requests of a session and of its sub-agents, in order."""
    previous: _Call | None = None
    for place, entry in _entries(line, session):
        if entry.get("type") != _SUB_AGENT:
            previous = _Call(place, entry, _pause_ns(place, entry, previous))
            yield previous
            continue
        # A sub-agent's times are on a clock of its own, so they say no pause before it or after it.
        previous = None
        for inner_place, inner in _entries(place, entry):
            if inner.get("type") == _SUB_AGENT:
                raise inner_place.error("type", "is a sub-agent inside of a sub-agent")
            previous = _Call(inner_place, inner, _pause_ns(inner_place, inner, previous))
            yield previous
        previous = None


def _entries(line: TextLine, session: JsonObject) -> Iterator[tuple[TextLine, JsonObject]]:
    entries = session.get("requests")
    if not isinstance(entries, list):
        reason = "missing" if entries is None else f"{shown(entries)} is not a list"
        raise line.error("requests", reason)
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise line.error(f"requests[{number}]", f"{shown(entry)} is not an object")
        yield line.below(f"requests[{number}]"), entry


def _pause_ns(place: TextLine, row: JsonObject, previous: _Call | None) -> int:
    if row.get("think_time") is not None:
        return time_ns(place, row, "think_time", unit_ns=NS_PER_S)
    at_ns = time_ns(place, row, "t", unit_ns=NS_PER_S)
    if previous is None:
        return 0
    gap_ns = at_ns - time_ns(previous.place, previous.row, "t", unit_ns=NS_PER_S)
    if previous.row.get("api_time") is not None:
        gap_ns -= time_ns(previous.place, previous.row, "api_time", unit_ns=NS_PER_S)
    return max(0, gap_ns)

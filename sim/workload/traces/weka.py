"""Weka's recorded coding-agent sessions: one JSON object for each session, with pauses of tools.

Published in callanjfox/kv-cache-tester ("Trace Replay Tester", section Trace Format), and as
SemiAnalysis's data sets `cc-traces-weka-*`, one session a line. As there, `think_time` is the time
that the client waited before a request: a tool ran, or a person read. A sub-agent is an entry with
requests of its own; sub-agents without a request between them began together, and their parent
waits for all of them.
"""

from collections.abc import Iterator, Sequence
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
_TOOL_CALL = "tool_use"  # why an answer ended
_LOCAL, _GLOBAL = "local", "global"
_OWN = 0  # in place of a sub-agent's number
_NOBODY = -1


class _Call(NamedTuple):
    """A request, its place in the file for messages, the pause before it, and its sub-agent.

    `sub_agent` counts the sub-agents of the session from 1; 0: it is a request of the session's own
    agent.
    """

    place: TextLine
    row: JsonObject
    pause_ns: int
    sub_agent: int


class _CallColumns:
    """The requests of all sessions, which grow while files are read."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.pauses, self.outputs, self.calls_tool = IntColumn(), IntColumn(), IntColumn()
        # The chain of each request, and of each chain the request that started it, or -1.
        self.chains, self.parents = IntColumn(), IntColumn()
        self.prompts: BlockColumn | None = None
        self.sessions: list[str] = []
        self.num_empty = self.num_sessions = 0
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
        chain_of = {_OWN: len(self.parents)}
        self.parents.append(_NOBODY)
        last_own_row, has_begun = _NOBODY, False
        for call in _calls(line, session):
            if self.is_full:
                break
            # What comes before the session's own first request is its own, as nothing started it.
            has_begun |= call.sub_agent == _OWN
            sub_agent = call.sub_agent if has_begun and last_own_row != _NOBODY else _OWN
            if not self._add_call(call, prompts, first_id):
                continue
            if sub_agent == _OWN:
                last_own_row = len(self.outputs) - 1
            elif sub_agent not in chain_of:
                chain_of[sub_agent] = len(self.parents)
                self.parents.append(last_own_row)
            self.chains.append(chain_of[sub_agent])
        names = [str(self.num_sessions)] * (len(self.outputs) - len(self.sessions))
        self.sessions += names
        self.num_sessions += bool(names)

    def _add_call(self, call: _Call, prompts: BlockColumn, first_id: int) -> bool:
        """Add a request; returns False if it is left out."""
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
            return False
        self.pauses.append(call.pause_ns)
        self.outputs.append(num_output)
        self.calls_tool.append(row.get("stop") == _TOOL_CALL)
        prompts.append(ids, num_input)
        return True

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
    chains = columns.chains.to_numpy()
    # Chain by chain; a file without sub-agents is in this order.
    order = np.argsort(chains, kind="stable")
    begun, firsts = np.unique(chains[order], return_index=True)
    place = np.empty(num_rows, dtype=np.int64)
    place[order] = np.arange(num_rows)
    parents = columns.parents.to_numpy()[begun]
    prompts = columns.prompts.prompts()
    return TraceRows(
        arrival_ns=np.zeros(num_rows, dtype=np.int64),
        prompts=prompts if begun[-1] == len(begun) - 1 else prompts.picked(order),
        output_tokens=columns.outputs.to_numpy()[order],
        sessions=[columns.sessions[row] for row in order.tolist()],
        has_times=False,
        closed_loop=Sessions(
            offsets=np.append(firsts, num_rows),
            pause_ns=columns.pauses.to_numpy()[order],
            history_row=np.arange(num_rows),
            parent_row=np.where(parents < 0, _NOBODY, place[parents]),
            calls_tool=columns.calls_tool.to_numpy()[order].astype(np.bool_),
        ),
        notes=left_out(columns.num_empty, "no output"),
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
    num_sub_agents, ended_ns = 0, list[int | None]()
    for place, entry in _entries(line, session):
        if entry.get("type") != _SUB_AGENT:
            previous = _Call(place, entry, _pause_ns(place, entry, previous, ended_ns), _OWN)
            ended_ns = []
            yield previous
            continue
        num_sub_agents += 1
        ended_ns.append(_end_ns(place, entry))
        # A sub-agent's times are on a clock of its own, so they say no pause before it or after it.
        previous = None
        for inner_place, inner in _entries(place, entry):
            if inner.get("type") == _SUB_AGENT:
                raise inner_place.error("type", "is a sub-agent inside of a sub-agent")
            pause_ns = _pause_ns(inner_place, inner, previous, ())
            previous = _Call(inner_place, inner, pause_ns, num_sub_agents)
            yield previous
        previous = None


def _end_ns(place: TextLine, entry: JsonObject) -> int | None:
    """When a sub-agent ended: its `t`, if it has a `duration_ms`, which ends there."""
    if entry.get("t") is None or entry.get("duration_ms") is None:
        return None
    return time_ns(place, entry, "t", unit_ns=NS_PER_S)


def _entries(line: TextLine, session: JsonObject) -> Iterator[tuple[TextLine, JsonObject]]:
    entries = session.get("requests")
    if not isinstance(entries, list):
        reason = "missing" if entries is None else f"{shown(entries)} is not a list"
        raise line.error("requests", reason)
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise line.error(f"requests[{number}]", f"{shown(entry)} is not an object")
        yield line.below(f"requests[{number}]"), entry


def _pause_ns(
    place: TextLine, row: JsonObject, previous: _Call | None, ended_ns: Sequence[int | None]
) -> int:
    """The pause before a request, `previous` being the one before it.

    `ended_ns` are the ends of the sub-agents that it waited for. If they are known, the pause is
    the time since the last of them, as `think_time` has the time that they took.
    """
    known_ns = [end_ns for end_ns in ended_ns if end_ns is not None]
    if known_ns and len(known_ns) == len(ended_ns):
        return max(0, time_ns(place, row, "t", unit_ns=NS_PER_S) - max(known_ns))
    if row.get("think_time") is not None:
        return time_ns(place, row, "think_time", unit_ns=NS_PER_S)
    at_ns = time_ns(place, row, "t", unit_ns=NS_PER_S)
    if previous is None:
        return 0
    gap_ns = at_ns - time_ns(previous.place, previous.row, "t", unit_ns=NS_PER_S)
    if previous.row.get("api_time") is not None:
        gap_ns -= time_ns(previous.place, previous.row, "api_time", unit_ns=NS_PER_S)
    return max(0, gap_ns)

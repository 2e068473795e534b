"""Traces of JSON lines whose prompts are lists of block ids: formats `mooncake` and `bailian`.

* Mooncake's are published in kvcache-ai/Mooncake (`FAST25-release/traces`). AIPerf 0.13
  (`MooncakeTrace` of `aiperf/dataset/loader/models.py`) made `hash_ids` optional, and added
  sessions: `session_id`; `delay` in ms, the pause between an answer and the next row of its
  session; and `context_mode`, which says whether a row has only what is new in its session.
* Alibaba's, of its service Bailian, are published in alibaba-edu/qwen-bailian-usagetraces-anon
  (`README.md`), with times in seconds and blocks of 16 tokens. Each row is a whole request:
  `input_length` and `hash_ids` cover the conversation before it. `parent_chat_id` is the `chat_id`
  of the turn before, -1 for a first turn. `type` and `turn` do not matter for a server.
"""

from itertools import islice
from pathlib import Path

import numpy as np

from sim.core.arrays import Int64
from sim.core.units import NS_PER_S
from sim.workload.prompts import BlockPrompts
from sim.workload.traces.files import JsonObject, TextLine, read_json_lines
from sim.workload.traces.rows import (
    IntColumn,
    Sessions,
    TraceRows,
    in_order,
    left_out,
    require_rows,
    shown,
    time_ns,
    whole,
)

# Larger ids are those of blocks that no other prompt shares.
MAX_HASH_ID = (1 << 40) - 1
_FIRST_OWN_ID = MAX_HASH_ID + 1


class BlockColumn:
    """A growing column of prompts. Blocks without an id get ids that no other prompt has."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._ids, self._offsets, self._lengths = IntColumn(), IntColumn([0]), IntColumn()
        self._next_own_id = _FIRST_OWN_ID

    def append(self, ids: list[int], num_tokens: int) -> None:
        """Add a prompt whose first blocks have these ids; there are no more ids than blocks."""
        num_own = -(-num_tokens // self._block_size) - len(ids)
        self._ids.extend(ids)
        if num_own:
            self._ids.extend(range(self._next_own_id, self._next_own_id + num_own))
            self._next_own_id += num_own
        self._offsets.append(len(self._ids))
        self._lengths.append(num_tokens)

    def prompts(self) -> BlockPrompts:
        return BlockPrompts(
            self._ids.to_numpy(),
            self._offsets.to_numpy(),
            self._lengths.to_numpy(),
            self._block_size,
        )


def hash_ids(line: TextLine, row: JsonObject) -> list[int]:
    ids = row.get("hash_ids")
    if ids is None:
        raise line.error("hash_ids", "missing")
    if not isinstance(ids, list):
        raise line.error("hash_ids", f"{shown(ids)} is not a list")
    # Most of a trace is hash ids, so a loop in Python over good ids would be slow.
    if ids and (set(map(type, ids)) != {int} or min(ids) < 0 or max(ids) > MAX_HASH_ID):
        bad = next(i for i in ids if type(i) is not int or not 0 <= i <= MAX_HASH_ID)
        raise line.error("hash_ids", f"{shown(bad)} is not a whole number from 0 to 2**40 - 1")
    return ids


def require_blocks(line: TextLine, ids: list[int], num_tokens: int, block_size: int) -> None:
    """Check that there are as many ids as blocks; a last block that is not full counts."""
    expected = -(-num_tokens // block_size)
    if len(ids) != expected:
        counts = f"{len(ids)} ids, but input_length / {block_size} rounded up is {expected}"
        raise line.error("hash_ids", counts)


# AIPerf's names (`ConversationContextMode`): whether a row has only what is new in its session.
_NEW, _WHOLE = "deltas_without_responses", "message_array_with_responses"


class _Columns:
    """The columns of a file, which grow while it is read.

    A *chain* is a row with an arrival time, and the rows of its session that follow it in a closed
    loop. All rows of a chain have the same `context_mode`.

    Attributes:
        chains: the number of each row's chain.
        is_new: whether each row has only what is new in its session.
        num_with_ids: rows with `hash_ids`.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.arrivals, self.pauses = IntColumn(), IntColumn()
        self.inputs, self.outputs = IntColumn(), IntColumn()
        self.prompts = BlockColumn(block_size)
        self.chains, self.is_new = IntColumn(), IntColumn()
        self.sessions: list[str] = []
        self.num_chains = self.num_with_ids = 0
        self._chain_of_session: dict[str, int] = {}
        self._modes: list[str] = []
        self._has_times: bool | None = None
        self._arrival_ns = 0

    @property
    def has_times(self) -> bool:
        return bool(self._has_times)

    def add(self, line: TextLine, row: JsonObject) -> None:
        session = _session(line, row)
        waits = session in self._chain_of_session and (
            row.get("delay") is not None or row.get("timestamp") is None
        )
        if waits:
            self.pauses.append(0 if row.get("delay") is None else time_ns(line, row, "delay"))
        else:
            self.pauses.append(0)
            self._arrive(line, row, session)
            if session:
                self._chain_of_session[session] = self.num_chains
            self.num_chains += 1
        self.arrivals.append(self._arrival_ns)
        input_length = whole(line, row, "input_length")
        self.inputs.append(input_length)
        self.outputs.append(whole(line, row, "output_length"))
        self._add_prompt(line, row, input_length)
        chain = self._chain_of_session[session] if waits else self.num_chains - 1
        self.chains.append(chain)
        self.is_new.append(self._has_only_new(line, row, chain))
        self.sessions.append(session)

    def _arrive(self, line: TextLine, row: JsonObject, session: str) -> None:
        is_given = row.get("timestamp") is not None
        if self._has_times is None:
            # Without sessions a row without a time stamp is a mistake.
            self._has_times = is_given or not session
        if self._has_times:
            at_ns = time_ns(line, row, "timestamp")
            self._arrival_ns = in_order(line, "timestamp", at_ns, self._arrival_ns)
        elif is_given:
            raise line.error("timestamp", "some rows have one, but the first one has not")

    def _has_only_new(self, line: TextLine, row: JsonObject, chain: int) -> bool:
        mode = row.get("context_mode", _NEW)
        if mode not in (_NEW, _WHOLE):
            raise line.error("context_mode", f"{shown(mode)} is neither {_NEW} nor {_WHOLE}")
        if chain == len(self._modes):
            self._modes.append(str(mode))
        if mode != self._modes[chain]:
            raise line.error("context_mode", f"is not {self._modes[chain]}, as in the row before")
        return mode == _NEW

    def _add_prompt(self, line: TextLine, row: JsonObject, input_length: int) -> None:
        if "hash_ids" not in row:
            self.prompts.append([], input_length)
            return
        ids = hash_ids(line, row)
        require_blocks(line, ids, input_length, self.block_size)
        self.prompts.append(ids, input_length)
        self.num_with_ids += 1


def read_mooncake(path: Path, *, limit: int | None, block_size: int) -> TraceRows:
    """Read `timestamp` (ms), `input_length`, `output_length`, `hash_ids` and fields of sessions.

    A block has `block_size` tokens; a prompt's last block may be partial. So a row must have
    `ceil(input_length / block_size)` ids, or no `hash_ids` at all: then it shares nothing with
    other rows. Rows must be in order of time. A later row of a session that has a `delay`, or no
    `timestamp`, is sent when the row before it has been answered and the delay has passed. Other
    fields are ignored.
    """
    columns = _Columns(block_size)
    for line, row in islice(read_json_lines(path), limit):
        columns.add(line, row)
    require_rows(len(columns.arrivals), path)
    sessions = columns.sessions if any(columns.sessions) else None
    num_rows, notes = len(columns.arrivals), []
    num_without = num_rows - columns.num_with_ids
    if num_without:
        notes.append(f"{num_without:,} rows have no hash_ids: their prompts share nothing")
    if columns.num_chains < num_rows:
        return _closed_loop(columns, tuple(notes))
    return TraceRows(
        arrival_ns=columns.arrivals.to_numpy(),
        prompts=columns.prompts.prompts() if columns.num_with_ids else columns.inputs.to_numpy(),
        output_tokens=columns.outputs.to_numpy(),
        sessions=sessions,
        has_times=columns.has_times,
        notes=tuple(notes),
    )


def _closed_loop(columns: _Columns, notes: tuple[str, ...]) -> TraceRows:
    """The rows, chain by chain; each chain is a session of the closed loop."""
    chains = columns.chains.to_numpy()
    order: Int64 = np.argsort(chains, kind="stable")
    offsets = np.searchsorted(chains[order], np.arange(columns.num_chains + 1))
    first_row = offsets[chains[order]]
    is_new = columns.is_new.to_numpy()[order].astype(bool)
    return TraceRows(
        arrival_ns=columns.arrivals.to_numpy()[order],
        prompts=columns.prompts.prompts().picked(order),
        output_tokens=columns.outputs.to_numpy()[order],
        sessions=[columns.sessions[row] for row in order.tolist()],
        has_times=columns.has_times,
        closed_loop=Sessions(
            offsets=offsets,
            pause_ns=columns.pauses.to_numpy()[order],
            history_row=np.where(is_new, first_row, np.arange(len(order))),
        ),
        notes=notes,
    )


def _session(line: TextLine, row: JsonObject) -> str:
    session = row.get("session_id")
    if session is None:
        return ""
    if not isinstance(session, str) or not session.isprintable():
        raise line.error("session_id", f"{shown(session)} is not a text that can be printed")
    return session


# `parent_chat_id` of a first turn.
_ROOT = -1
_MAX_CHAT_ID = (1 << 63) - 1


def read_bailian(path: Path, *, limit: int | None, block_size: int) -> TraceRows:
    """Read the rows, which must be in order of time. Those without output are left out.

    `hash_ids` may lack the id of a partial last block. A request's session is named by the first
    chat of its conversation.
    """
    arrivals, outputs, prompts = IntColumn(), IntColumn(), BlockColumn(block_size)
    sessions: list[str] = []
    # Of each chat, the first chat of its conversation.
    roots: dict[int, int] = {}
    arrival_ns, num_empty = 0, 0
    for line, row in islice(read_json_lines(path), limit):
        at_ns = time_ns(line, row, "timestamp", unit_ns=NS_PER_S)
        arrival_ns = in_order(line, "timestamp", at_ns, arrival_ns)
        input_length = whole(line, row, "input_length")
        output_length = whole(line, row, "output_length", low=0)
        ids = hash_ids(line, row)
        if len(ids) != input_length // block_size:
            require_blocks(line, ids, input_length, block_size)
        chat, root = _chats(line, row, roots)
        roots[chat] = root
        if not output_length:
            num_empty += 1
            continue
        arrivals.append(arrival_ns)
        outputs.append(output_length)
        prompts.append(ids, input_length)
        sessions.append(str(root))
    require_rows(len(arrivals), path)
    return TraceRows(
        arrival_ns=arrivals.to_numpy(),
        prompts=prompts.prompts(),
        output_tokens=outputs.to_numpy(),
        sessions=sessions,
        notes=left_out(num_empty, "no output"),
    )


def _chats(line: TextLine, row: JsonObject, roots: dict[int, int]) -> tuple[int, int]:
    """The row's chat, and the first chat of its conversation."""
    chat = whole(line, row, "chat_id", low=0, high=_MAX_CHAT_ID)
    parent = row.get("parent_chat_id", _ROOT)
    if type(parent) is not int or not _ROOT <= parent <= _MAX_CHAT_ID:
        raise line.error("parent_chat_id", f"{shown(parent)} is neither a chat nor -1")
    # The beginning of a conversation may be before that of the trace.
    return chat, chat if parent == _ROOT else roots.get(parent, parent)

"""Alibaba's Qwen-Bailian traces: JSON lines with times in seconds, and prefix blocks of 16 tokens.

Published in alibaba-edu/qwen-bailian-usagetraces-anon (`README.md`). Each row is a whole request:
`input_length` and `hash_ids` cover the conversation before it. `parent_chat_id` is the `chat_id` of
the turn before, -1 for a first turn. `type` and `turn` do not matter for a server.
"""

from itertools import islice
from pathlib import Path

from sim.core.units import NS_PER_S
from sim.workload.traces.blocks import BlockColumn, hash_ids, require_blocks
from sim.workload.traces.fields import in_order, shown, time_ns, whole
from sim.workload.traces.lines import JsonObject, TextLine, read_json_lines
from sim.workload.traces.rows import IntColumn, TraceRows, left_out, require_rows

_ROOT = -1
_MAX_CHAT_ID = (1 << 63) - 1


def read_bailian(path: Path, *, limit: int | None, block_size: int) -> TraceRows:
    """Read all rows, which are in order of time. A row without output is left out.

    The ids may lack that of a partial last block. A request's session is the first chat of its
    conversation.

    Raises:
        InputError: the file or a line is bad.
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

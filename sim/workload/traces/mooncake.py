"""Mooncake traces: JSON lines with arrival, lengths, and the ids of the prompt's prefix blocks."""

from itertools import islice
from pathlib import Path

from sim.workload.prompts import BlockPrompts
from sim.workload.traces.fields import in_order, shown, time_ns, whole
from sim.workload.traces.lines import JsonObject, TextLine, read_json_lines
from sim.workload.traces.rows import IntColumn, TraceRows, require_rows

_MAX_HASH_ID = (1 << 40) - 1


def read_mooncake(path: Path, *, limit: int | None, block_size: int) -> TraceRows:
    """Read `timestamp` (ms), `input_length`, `output_length`, `hash_ids` of every line.

    A block has `block_size` tokens; a prompt's last block may be partial. So a row must have
    `ceil(input_length / block_size)` ids. Rows must be in order of time. Other fields are ignored.

    Raises:
        InputError: the file or a line is bad.
    """
    arrivals, inputs, outputs = IntColumn(), IntColumn(), IntColumn()
    block_ids, offsets = IntColumn(), IntColumn([0])
    arrival_ns = 0
    for line, row in islice(read_json_lines(path), limit):
        arrival_ns = in_order(line, "timestamp", time_ns(line, row, "timestamp"), arrival_ns)
        input_length = whole(line, row, "input_length")
        arrivals.append(arrival_ns)
        inputs.append(input_length)
        outputs.append(whole(line, row, "output_length"))
        block_ids.extend(_hash_ids(line, row, -(-input_length // block_size), block_size))
        offsets.append(len(block_ids))
    require_rows(len(arrivals), path)
    num_tokens = inputs.to_numpy()
    return TraceRows(
        arrival_ns=arrivals.to_numpy(),
        prompts=BlockPrompts(block_ids.to_numpy(), offsets.to_numpy(), num_tokens, block_size),
        output_tokens=outputs.to_numpy(),
    )


def _hash_ids(line: TextLine, row: JsonObject, num_expected: int, block_size: int) -> list[int]:
    ids = row.get("hash_ids")
    if ids is None:
        raise line.error("hash_ids", "missing")
    if not isinstance(ids, list):
        raise line.error("hash_ids", f"{shown(ids)} is not a list")
    if len(ids) != num_expected:
        counts = f"{len(ids)} ids, but input_length / {block_size} rounded up is {num_expected}"
        raise line.error("hash_ids", counts)
    # Most of a trace is hash ids, so a loop in Python over good ids would be slow.
    if set(map(type, ids)) != {int} or min(ids) < 0 or max(ids) > _MAX_HASH_ID:
        bad = next(i for i in ids if type(i) is not int or not 0 <= i <= _MAX_HASH_ID)
        raise line.error("hash_ids", f"{shown(bad)} is not a whole number from 0 to 2**40 - 1")
    return ids

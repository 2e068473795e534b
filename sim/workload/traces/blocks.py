"""Prompts of a trace that are given by the ids of their blocks."""

from sim.workload.prompts import BlockPrompts
from sim.workload.traces.fields import shown
from sim.workload.traces.lines import JsonObject, TextLine
from sim.workload.traces.rows import IntColumn

MAX_HASH_ID = (1 << 40) - 1
_FIRST_OWN_ID = MAX_HASH_ID + 1


class BlockColumn:
    """A growing column of prompts. Tokens without an id get ids that no other prompt has."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._ids, self._offsets, self._lengths = IntColumn(), IntColumn([0]), IntColumn()
        self._next_own_id = _FIRST_OWN_ID

    def append(self, ids: list[int], num_tokens: int) -> None:
        """Add a prompt whose first blocks have these ids, no more than it has blocks."""
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
    """The field `hash_ids`: a list of block ids.

    Raises:
        InputError: it is missing, or not such a list.
    """
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
    """Check that each block has an id, the partial last one too.

    Raises:
        InputError: there are more ids, or fewer.
    """
    expected = -(-num_tokens // block_size)
    if len(ids) != expected:
        counts = f"{len(ids)} ids, but input_length / {block_size} rounded up is {expected}"
        raise line.error("hash_ids", counts)

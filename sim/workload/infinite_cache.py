"""A prefix cache that never evicts: how much of the prompts would be found in it."""

from collections.abc import Hashable, Iterator, Sequence
from hashlib import blake2b

from sim.core.tokens import BlockPrompt, Prompt, SegmentPrompt

_ROOT = 0


class InfiniteCache:
    """Counts the blocks of prompts that it finds, from the first block up to the first miss.

    Two blocks are the same if their tokens and all tokens before them are. Segments and block ids
    are compared by seed or id, without making token ids; so they never equal a prompt that is given
    by token ids. Two blocks of a trace with equal ids are the same even if one of them is not full,
    because publishers of traces compute their hit rates like that.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._nodes: dict[tuple[int, Hashable], int] = {}
        self._blocks = self._hit_blocks = self._tokens = self._hit_tokens = 0

    def add(self, prompt: Prompt) -> None:
        """Look the prompt up, then keep it."""
        keys = self._block_keys(prompt)
        node, hits = _ROOT, 0
        for key in keys:
            new_node = len(self._nodes) + 1
            node = self._nodes.setdefault((node, key), new_node)
            # All blocks after a new one are new, too, so the found ones are the first ones.
            hits += node != new_node
        self._blocks += len(keys)
        self._hit_blocks += hits
        self._tokens += len(prompt)
        self._hit_tokens += min(hits * self._block_size, len(prompt))

    def hit_pcts(self) -> tuple[float, float]:
        """Found blocks and found tokens so far, in % of all; 0 if there were no blocks."""
        return (
            100 * self._hit_blocks / max(1, self._blocks),
            100 * self._hit_tokens / max(1, self._tokens),
        )

    def _block_keys(self, prompt: Prompt) -> Sequence[Hashable]:
        size = self._block_size
        match prompt:
            case BlockPrompt() if prompt.block_size == size:
                return [int(i) for i in prompt.block_ids]
            case BlockPrompt():
                named = [(~int(i), prompt.block_size) for i in prompt.block_ids]
                last, _ = named[-1]
                named[-1] = (last, len(prompt) - (len(named) - 1) * prompt.block_size)
                return list(_pieces(named, size))
            case SegmentPrompt():
                return list(_pieces(prompt.segments, size))
        ids = prompt.token_ids()
        return [
            blake2b(ids[start : start + size].tobytes(), digest_size=16).digest()
            for start in range(0, len(ids), size)
        ]


def _pieces(named: Sequence[tuple[int, int]], size: int) -> Iterator[Hashable]:
    """Cut a sequence of named parts into blocks; a block is a tuple of (name, start, stop)."""
    block: list[tuple[int, int, int]] = []
    room = size
    for name, num_tokens in named:
        start = 0
        while start < num_tokens:
            stop = min(num_tokens, start + room)
            block.append((name, start, stop))
            room -= stop - start
            start = stop
            if not room:
                yield tuple(block)
                block, room = [], size
    if block:
        yield tuple(block)

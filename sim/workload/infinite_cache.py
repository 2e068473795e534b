"""A prefix cache that never evicts. It tells how much of the prompts could be found at most."""

from collections.abc import Hashable, Iterator, Sequence
from hashlib import blake2b

from sim.core.tokens import BlockPrompt, Prompt, SegmentPrompt

_ROOT = 0


class InfiniteCache:
    """Counts the blocks that it finds, from each prompt's first block up to the first miss.

    Two blocks are equal if their tokens and all tokens before them are equal. Segments are compared
    by seed and blocks of a trace by id, without making token ids. So neither is ever equal to a
    prompt that is given by token ids. Blocks of a trace with equal ids are equal even if one of
    them is not full: publishers of traces compute hit rates in this way.
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
            # All blocks after a new block are new too, so only leading blocks are counted.
            hits += node != new_node
        self._blocks += len(keys)
        self._hit_blocks += hits
        self._tokens += len(prompt)
        self._hit_tokens += min(hits * self._block_size, len(prompt))

    def hit_pcts(self) -> tuple[float, float]:
        """Found blocks and found tokens so far, in percent of all; 0 if there were no blocks."""
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
                # Block ids become negative, so that none is equal to the seed of a segment.
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
    """Cut parts, given by name and length, into blocks: tuples of (name, start, stop)."""
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

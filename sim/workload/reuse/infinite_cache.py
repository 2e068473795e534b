"""A prefix cache that never evicts, and the names by which it tells blocks apart."""

from collections.abc import Hashable, Iterator, Sequence
from hashlib import blake2b

from sim.core.tokens import BlockPrompt, Prompt, SegmentPrompt

_ROOT = 0


class InfiniteCache:
    """A prefix cache that never evicts. It counts hits: a prompt's blocks before the first miss.

    Two blocks are equal if their tokens and all tokens before them are equal. Segments are compared
    by seed and blocks of a trace by id, without making token ids. So neither is ever equal to a
    prompt that is given by token ids. If the cache has the block size of a trace, two blocks with
    equal ids are equal even if one of them is not full: publishers of traces compute hit rates in
    this way.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._nodes: dict[tuple[int, Hashable], int] = {}
        self._blocks = self._hit_blocks = self._tokens = self._hit_tokens = 0

    def add(self, prompt: Prompt) -> None:
        """Look the prompt up, then keep it."""
        keys = block_keys(prompt, self._block_size)
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
        """Hit rates so far, in blocks and in tokens, in percent; 0 if there were no blocks."""
        return (
            100 * self._hit_blocks / max(1, self._blocks),
            100 * self._hit_tokens / max(1, self._tokens),
        )


def block_keys(prompt: Prompt, size: int) -> Sequence[Hashable]:
    """What names the blocks of a prompt, each by its own content; the last may be partial."""
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
    """Cut parts, given as (name, length), into blocks, each a tuple of (name, start, stop)."""
    block: list[tuple[int, int, int]] = []
    num_left = size
    for name, num_tokens in named:
        start = 0
        while start < num_tokens:
            stop = min(num_tokens, start + num_left)
            block.append((name, start, stop))
            num_left -= stop - start
            start = stop
            if not num_left:
                yield tuple(block)
                block, num_left = [], size
    if block:
        yield tuple(block)

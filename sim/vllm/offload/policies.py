"""Which chunks leave CPU memory when it is full: `lru` and `arc`.

vLLM 0.33.0: v1/kv_offload/cpu/policies/{base,lru,arc}.py.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple


class ChunkKey(NamedTuple):
    """Names a chunk by its tokens and all tokens before them.

    Attributes:
        place: its number in its sequence, from 0.
        group: number of its group of layers.
        prefix: hash of the sequence's tokens up to the chunk's end.
    """

    place: int
    group: int
    prefix: int


class StoredChunk:
    """A chunk in CPU memory.

    Attributes:
        num_loads: copies to the GPU that read it now; -1: it is being written.
    """

    def __init__(self) -> None:
        self.num_loads = -1

    @property
    def is_ready(self) -> bool:
        return self.num_loads >= 0

    @property
    def is_idle(self) -> bool:
        """Whether it may leave CPU memory."""
        return self.num_loads == 0


class Access:
    """What one request has had to do with CPU memory.

    Attributes:
        seen: chunks that it has found there, or wanted to store there, in order.
        inserted: chunks that it has stored.
        reused: chunks that were there without it.
        missed: chunks that it wanted to store and that were not there.
        rank: with `lru`: how recent the request is; 0: it has no rank yet.
        num_stores: copies from the GPU for it that have not ended.
        is_over: it has ended, and stores no more.
    """

    def __init__(self) -> None:
        self.seen: dict[ChunkKey, None] = {}
        self.inserted: set[ChunkKey] = set()
        self.reused: set[ChunkKey] = set()
        self.missed: set[ChunkKey] = set()
        self.rank = 0
        self.num_stores = 0
        self.is_over = False


class Policy:
    """Base class: the chunks in CPU memory, and the order in which they leave it."""

    def __len__(self) -> int:
        raise NotImplementedError

    def find(self, key: ChunkKey) -> StoredChunk | None:
        """The chunk of this name; None: CPU memory does not have it."""
        raise NotImplementedError

    def insert(self, key: ChunkKey, chunk: StoredChunk, access: Access) -> None:
        """Add a chunk that is being written for the request of `access`."""
        raise NotImplementedError

    def remove(self, key: ChunkKey) -> None:
        """Remove a chunk that could not be written."""
        raise NotImplementedError

    def evict(self, num_chunks: int, kept: Collection[ChunkKey]) -> list[ChunkKey] | None:
        """Remove idle chunks that are not among `kept`; None: there are not enough, none is gone.

        `num_chunks` is at least 1.
        """
        raise NotImplementedError

    def accessed(self, keys: Sequence[ChunkKey], access: Access) -> None:
        """A request has to do with these chunks for the first time."""

    def missed(self, keys: Sequence[ChunkKey]) -> None:
        """A request wants to store these chunks for the first time, and they are not there."""

    def request_ended(self, keys: Sequence[ChunkKey], access: Access) -> None:
        """A request has ended; `keys` are the chunks that it has seen, the first one first."""
        raise NotImplementedError

    def became_idle(self, key: ChunkKey) -> None:
        """A chunk has been written, or is not read any more."""

    def chunks(self) -> Iterator[StoredChunk]:
        """All chunks, for checks."""
        raise NotImplementedError


# Compared in this order: the smallest leaves first. The second number puts the end of a request's
# prefix before its beginning.
_Rank = tuple[int, int]
_MOST_ENTRIES = 64


class LruPolicy(Policy):
    """The chunks of the request that used any of them least recently go first, its last one first.

    While a request lives, its chunks share its rank. When it ends, each gets a rank of its own.
    """

    def __init__(self) -> None:
        self._chunks: dict[ChunkKey, StoredChunk] = {}
        self._ranks: dict[ChunkKey, _Rank] = {}
        # Of idle chunks. An entry counts only if its chunk is idle and still has this rank.
        self._heap: list[tuple[_Rank, ChunkKey]] = []
        self._num_ranks = 0

    def __len__(self) -> int:
        return len(self._chunks)

    def find(self, key: ChunkKey) -> StoredChunk | None:
        return self._chunks.get(key)

    def insert(self, key: ChunkKey, chunk: StoredChunk, access: Access) -> None:
        self._chunks[key] = chunk
        self._ranks[key] = self._rank_of(access), -key.place

    def remove(self, key: ChunkKey) -> None:
        del self._chunks[key], self._ranks[key]

    def _rank_of(self, access: Access) -> int:
        if not access.rank:
            self._num_ranks += 1
            access.rank = self._num_ranks
        return access.rank

    def _move(self, key: ChunkKey, rank: _Rank) -> None:
        self._ranks[key] = rank
        self.became_idle(key)

    def accessed(self, keys: Sequence[ChunkKey], access: Access) -> None:
        number = self._rank_of(access)
        for key in keys:
            rank = number, -key.place
            if key in self._chunks and self._ranks[key] < rank:
                self._move(key, rank)

    def request_ended(self, keys: Sequence[ChunkKey], access: Access) -> None:
        for key in reversed(keys):
            if key in self._chunks:
                self._num_ranks += 1
                self._move(key, (self._num_ranks, 0))

    def became_idle(self, key: ChunkKey) -> None:
        if not self._chunks[key].is_idle:
            return
        heappush(self._heap, (self._ranks[key], key))
        if len(self._heap) > 2 * len(self._chunks) + _MOST_ENTRIES:
            chunks = self._chunks.items()
            self._heap = [(self._ranks[key], key) for key, chunk in chunks if chunk.is_idle]
            heapify(self._heap)

    def evict(self, num_chunks: int, kept: Collection[ChunkKey]) -> list[ChunkKey] | None:
        chosen: dict[ChunkKey, None] = {}
        passed_over: list[tuple[_Rank, ChunkKey]] = []
        while self._heap and len(chosen) < num_chunks:
            entry = heappop(self._heap)
            rank, key = entry
            chunk = self._chunks.get(key)
            if chunk is None or not chunk.is_idle or self._ranks[key] != rank:
                continue
            if key in kept:
                passed_over.append(entry)
            else:
                chosen[key] = None
        if len(chosen) < num_chunks:
            passed_over += [(self._ranks[key], key) for key in chosen]
        for entry in passed_over:
            heappush(self._heap, entry)
        if len(chosen) < num_chunks:
            return None
        for key in chosen:
            del self._chunks[key], self._ranks[key]
        return list(chosen)

    def chunks(self) -> Iterator[StoredChunk]:
        return iter(self._chunks.values())


class ArcPolicy(Policy):
    """Chunks that a later request has used again are kept apart from those that none has.

    How much room each of the two lists gets follows from which list the chunks that come back had
    left ("Adaptive Replacement Cache"). A list's least recently used chunk leaves first.

    Attributes:
        target: chunks that the list of those used once should have.
    """

    def __init__(self, num_chunks: int, *, takes_either: bool = True) -> None:
        """`takes_either`: if a list has nothing to give, the other one has to."""
        self._num_chunks = num_chunks
        self._takes_either = takes_either
        self.target = 0.0
        self._once: OrderedDict[ChunkKey, StoredChunk] = OrderedDict()
        self._again: OrderedDict[ChunkKey, StoredChunk] = OrderedDict()
        # What has left each of the two lists lately.
        self._left_once: OrderedDict[ChunkKey, None] = OrderedDict()
        self._left_again: OrderedDict[ChunkKey, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._once) + len(self._again)

    def find(self, key: ChunkKey) -> StoredChunk | None:
        return self._once.get(key) or self._again.get(key)

    def insert(self, key: ChunkKey, chunk: StoredChunk, access: Access) -> None:
        self._once[key] = chunk
        self._left_once.pop(key, None)
        self._left_again.pop(key, None)

    def remove(self, key: ChunkKey) -> None:
        if self._once.pop(key, None) is None:
            del self._again[key]

    def missed(self, keys: Sequence[ChunkKey]) -> None:
        for key in reversed(keys):
            once, again = len(self._left_once), len(self._left_again)
            if key in self._left_once:
                self.target = min(self.target + max(1, again / once), self._num_chunks)
                self._left_once.move_to_end(key)
            elif key in self._left_again:
                self.target = max(self.target - max(1, once / again), 0)
                self._left_again.move_to_end(key)

    def request_ended(self, keys: Sequence[ChunkKey], access: Access) -> None:
        only_inserted = access.inserted - access.reused
        for key in reversed(keys):
            if key in only_inserted:
                if key in self._once:
                    self._once.move_to_end(key)
                elif key in self._again:
                    self._again.move_to_end(key)
            elif key in access.reused:
                if key in self._once:
                    self._again[key] = self._once.pop(key)
                elif key in self._again:
                    self._again.move_to_end(key)

    def evict(self, num_chunks: int, kept: Collection[ChunkKey]) -> list[ChunkKey] | None:
        once = _idle(self._once, kept)
        again = _idle(self._again, kept)
        chosen: list[tuple[ChunkKey, bool]] = []
        num_once = len(self._once)
        for _ in range(num_chunks):
            key = next(once, None) if num_once >= int(self.target) else None
            was_once = key is not None
            if key is None:
                key = next(again, None)
            if key is None and self._takes_either:
                key, was_once = next(once, None), True
            if key is None:
                return None
            num_once -= was_once
            chosen.append((key, was_once))
        for key, was_once in chosen:
            if was_once:
                del self._once[key]
                self._left_once[key] = None
            else:
                del self._again[key]
                self._left_again[key] = None
        for left in (self._left_once, self._left_again):
            while len(left) > self._num_chunks:
                left.popitem(last=False)
        return [key for key, _ in chosen]

    def chunks(self) -> Iterator[StoredChunk]:
        yield from self._once.values()
        yield from self._again.values()


def _idle(
    chunks: OrderedDict[ChunkKey, StoredChunk], kept: Collection[ChunkKey]
) -> Iterator[ChunkKey]:
    """The chunks that may leave, the least recently used first."""
    return (key for key, chunk in chunks.items() if chunk.is_idle and key not in kept)

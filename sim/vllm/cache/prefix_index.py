"""Which blocks of layers with full attention can be found: every full block.

vLLM (0.33.0: `FullAttentionManager` of v1/core/single_type_kv_cache_manager.py) hashes every block
as soon as it is full. Most hashes are never looked for, so here hashing is put off: a request's
next blocks are hashed, a few at a time, when another request has found the prefix before them and
looks for what follows. Blocks are compared by their last tokens first: where prompts share nothing,
no block is hashed at all. Requests find the same blocks either way.

Example: request A fills blocks for the prefixes P1, P2, P3. Later request B has found P1 and looks
for what follows it. Only then are A's next blocks hashed; a block that has been allocated to
another request meanwhile is left out.
"""

import numpy as np
from numpy.typing import NDArray

from sim.core.errors import InvariantError
from sim.core.tokens import TokenIds, TokenSequence
from sim.vllm.cache.block_pool import BlockPool
from sim.vllm.cache.free_blocks import FreedGroup
from sim.vllm.request import (
    ANY_TOKEN,
    NO_BLOCKS,
    NULL,
    BlockIds,
    BlockTable,
    Hashes,
    RequestBlocks,
    block_ids,
)


class FullAttentionTable(BlockTable):
    """The object outlives the request: blocks keep their contents until they are allocated again.

    Of the attributes of all tables, `num_cached` counts the full blocks, found ones included, and
    `blocks` are those behind `hashed`.

    Attributes:
        prompt: the request's tokens without its output.
        hashes: hashes of the request's prefixes, as far as they are computed.
        hashed: the first blocks, as far as they can be found in the pool.
        full_at: for each block that the request filled, in order, the number of the decision at
            which the block became full. Blocks that the request found in the cache are left out.
    """

    def __init__(self, kv: RequestBlocks, found: BlockIds, number: int) -> None:
        """Start with the blocks that an admitted request found; all of them have hashes."""
        super().__init__(number)
        self.prompt = kv.prompt
        self.hashes = kv.hashes
        self.hashed = found
        self.num_cached = self._num_found = len(found)
        self.full_at: list[int] = []
        self._kv: RequestBlocks | None = kv
        # Of an ended request: its tokens from `_kept_from` on, as far as they are in full blocks.
        self._kept: TokenSequence | None = None
        self._kept_from = 0
        self.group: FreedGroup | None = None

    @property
    def num_blocks(self) -> int:
        return len(self.hashed) + len(self.blocks)

    def blocks_from(self, place: int) -> list[int]:
        num_hashed = len(self.hashed)
        if place >= num_hashed:
            return self.blocks[place - num_hashed :]
        first: list[int] = self.hashed[place:].tolist()
        return first + self.blocks

    @property
    def parent(self) -> int:
        """Hash of the prefix that ends where the blocks without hashes start; 0: no prefix."""
        return self.hashes.before(len(self.hashed))

    def last_token(self, block_size: int) -> int:
        """The last token of the first block without a hash; `ANY_TOKEN`: it may be any."""
        num_hashed = len(self.hashed)
        if self._kv is None and self.num_intact <= num_hashed:
            return ANY_TOKEN
        return self.token_at(num_hashed, block_size)

    @property
    def num_intact(self) -> int:
        """How many of the full blocks, from the first on, still hold the request's tokens.

        Freed blocks are allocated again from the last to the first.
        """
        if self.group is None:
            return self.num_cached
        return min(self.num_cached, self.num_blocks - self.group.num_dequeued)

    @property
    def is_exhausted(self) -> bool:
        """No block is left to hash, and none will come."""
        return self.group is not None and self.num_intact <= len(self.hashed)

    def is_in_use(self, number_of: NDArray[np.int64]) -> bool:
        """Whether blocks of the request may be found; `number_of`: see `BlockPool`."""
        if not self.is_exhausted:
            return True
        return bool((number_of[self.hashed[self._num_found :]] == self.number).any())

    def token_at(self, block: int, block_size: int) -> int:
        """The last token of a full block that the request filled; `ANY_TOKEN`: it may be any."""
        if self._kv is not None:
            return self._kv.last_token(block, block_size)
        end = (block + 1) * block_size
        return int(self._read(end - 1, end)[0])

    def hash_next(self, block_size: int) -> tuple[int, int]:
        """Hash the next few full blocks; returns where they begin and end in `hashed`."""
        if self._kv is not None and self._kv.catch_up is not None:
            self._kv.catch_up()
        first, end = len(self.hashed), self.num_intact
        if first >= end:
            return first, first
        if len(self.hashes) <= first:
            self.hashes.extend(self._read, end, block_size)
        end = min(end, len(self.hashes))
        self.hashed = np.concatenate([self.hashed, block_ids(self.blocks[: end - first])])
        del self.blocks[: end - first]
        if self.group is not None:
            self.group.num_plain = len(self.blocks)
        return first, end

    def filled_at(self, first: int, end: int) -> NDArray[np.int64]:
        """At which decisions the blocks from `first` to `end`, which it filled, became full."""
        return np.array(self.full_at[first - self._num_found : end - self._num_found])

    def freed(self, group: FreedGroup, block_size: int) -> None:
        """The request has freed its blocks; the queue of free blocks has them as `group`."""
        self.group = group
        self.keep_tokens(block_size)

    def keep_tokens(self, block_size: int) -> None:
        """The request ends, or is preempted: its tokens are kept here."""
        if self._kv is not None:
            start, end = self._num_found * block_size, self.num_cached * block_size
            if start < end:
                self._kept, self._kept_from = self._kv.part(start, end), start
            self._kv = None

    def _read(self, start: int, stop: int) -> TokenIds:
        if self._kv is not None:
            return self._kv.ids(start, stop)
        if self._kept is None:
            raise InvariantError(f"tokens {start} to {stop} were read, but no tokens were kept")
        return self._kept[start - self._kept_from : stop - self._kept_from]


# Exhausted entries are dropped when the index has more entries than this number plus twice the
# number that was kept the last time.
_MOST_EXHAUSTED = 256


class PrefixIndex:
    """All cached blocks of a group of layers, those without a hash included.

    Hashes are known to the pool with the group's `salt`; here they are without it.
    """

    def __init__(self, pool: BlockPool, block_size: int, salt: int) -> None:
        self._pool = pool
        self._salt = salt
        self._block_size = block_size
        # By the hash of the prefix before the blocks, then by the last token of the first of them.
        self._unhashed: dict[int, dict[int, list[FullAttentionTable]]] = {}
        self._num_unhashed = 0
        self._most_unhashed = _MOST_EXHAUSTED
        # By the hash of a prefix and the last token of the block after it: hashes of such blocks,
        # salted, those of evicted ones included. Blocks are left out whose table has the only block
        # with that prefix's hash: it is evicted after them.
        self._begins: dict[tuple[int, int], set[int]] = {}
        self._most_begins = _MOST_EXHAUSTED
        # Tables by admission number: all that the pool's `path_of` names, and some others.
        self._paths: dict[int, FullAttentionTable] = {}
        self._most_paths = _MOST_EXHAUSTED
        # How many tables it took to find the latest prefix. From one it is found at once again.
        self._num_followed = 0

    def admit(self, kv: RequestBlocks, found: BlockIds, number: int) -> FullAttentionTable:
        """Add the blocks that a request has found, and has filled or will fill."""
        table = FullAttentionTable(kv, found, number)
        if self._num_followed > 1:
            self._pool.path_of[found] = number
            self._note_path(table)
        self._add(table)
        return table

    def _note_path(self, table: FullAttentionTable) -> None:
        self._paths[table.number] = table
        if len(self._paths) > self._most_paths:
            number_of = self._pool.number_of
            kept = {n: each for n, each in self._paths.items() if each.is_in_use(number_of)}
            self._paths = kept
            self._most_paths = 2 * len(kept) + _MOST_EXHAUSTED

    def _add(self, unhashed: FullAttentionTable) -> None:
        parent = unhashed.parent
        by_token = self._unhashed.get(parent)
        if by_token is None:
            by_token = self._unhashed[parent] = {}
            self._note_waiting([parent])
        token = unhashed.last_token(self._block_size)
        same = by_token.get(token)
        if same is None:
            by_token[token] = [unhashed]
        else:
            same.append(unhashed)
        self._num_unhashed += 1
        if self._num_unhashed > self._most_unhashed:
            self._drop_exhausted()

    def _note_waiting(self, prefixes: list[int]) -> None:
        """Blocks without a hash may follow these prefixes."""
        for prefix in prefixes:
            block = self._pool.block_of_hash.get(prefix ^ self._salt)
            if block is not None:
                self._pool.is_waited_behind[block] = True

    def find(self, kv: RequestBlocks, most: int) -> BlockIds:
        """The first blocks of a request's tokens, up to the first that is not cached.

        At most `most`. More of the request's hashes are computed when they are needed.
        """
        hashes, size, block_of_hash = kv.hashes, self._block_size, self._pool.block_of_hash
        found: list[BlockIds] = []
        place = 0
        while place < most:
            parent = hashes.before(place)
            if parent in self._unhashed:
                self._hash_after(parent, kv.last_token(place, size))
            if place == len(hashes):
                token = kv.last_token(place, size)
                likely = self._likely_next(token, place, parent, found)
                if likely == NULL and token != ANY_TOKEN:
                    break
                path = None if likely == NULL else self._path_if_known(likely, place)
                if path is None or not kv.take_hashes(path.hashes, path.prompt, size):
                    hashes.extend(kv.ids, most, size)
            block = block_of_hash.get(hashes.at(place) ^ self._salt)
            if block is None:
                break
            follow = self._follow(block, place, hashes.values[place:most])
            found.append(follow)
            place += len(follow)
        self._num_followed = len(found)
        if not found:
            return NO_BLOCKS
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _path(self, block: int, place: int) -> FullAttentionTable:
        """A table with this block at this place, hashed: the latest one that found it, if known."""
        path = self._path_if_known(block, place)
        if path is None:
            raise InvariantError(f"no table has cached block {block} at place {place}")
        return path

    def _path_if_known(self, block: int, place: int) -> FullAttentionTable | None:
        """The same; None for a block that this group has lost, and that another group has taken."""
        path = self._paths.get(int(self._pool.path_of[block]))
        if path is None or len(path.hashed) <= place or path.hashed[place] != block:
            return self._paths.get(int(self._pool.number_of[block]))
        return path

    def _follow(self, block: int, place: int, wanted: Hashes) -> BlockIds:
        """The blocks of one table from `place` on, as far as they have the hashes `wanted`.

        `block` is the first of them. They end at the latest with one behind which blocks may have
        to be hashed.
        """
        pool, path = self._pool, self._path(block, place)
        blocks = path.hashed[place : place + len(wanted)]
        wanted = wanted[: len(blocks)]
        ends = pool.hash_of[blocks] != (wanted ^ np.uint64(self._salt) if self._salt else wanted)
        if pool.equal_blocks:
            ends |= pool.is_second[blocks]
        ends[1:] |= pool.is_waited_behind[blocks[:-1]]
        end = int(ends.argmax())
        return blocks[:end] if ends[end] else blocks

    def may_find_more(self, kv: RequestBlocks, found: BlockIds) -> bool:
        """Whether a running request may fill blocks that continue a prefix, or part of it.

        `kv` looks for the prefix, of which `find` has just found these blocks.
        """
        waited = self._pool.is_waited_behind[found]
        places: list[int] = (waited.nonzero()[0] + 1).tolist() if np.count_nonzero(waited) else []
        for place in [0, *places]:
            by_token = self._unhashed.get(kv.hashes.before(place))
            if by_token is None:
                continue
            for token in _alike(by_token, kv.last_token(place, self._block_size)):
                if any(each.group is None for each in by_token.get(token, ())):
                    return True
        return False

    def _likely_next(self, token: int, place: int, parent: int, found: list[BlockIds]) -> int:
        """A cached block behind those found so far, whose last token may be this one.

        `parent` is the hash of the prefix that they are. `NULL`: there is none, or it is not known
        which.
        """
        pool = self._pool
        for each in (token, ANY_TOKEN):
            for begin in self._begins.get((parent, each), ()):
                block = pool.block_of_hash.get(begin, NULL)
                if block != NULL:
                    return block
        if not found:
            return NULL
        before = self._paths[int(pool.number_of[found[-1][-1]])]
        if place >= len(before.hashed):
            return NULL
        is_alike = before.token_at(place, self._block_size) in (token, ANY_TOKEN)
        return int(before.hashed[place]) if is_alike else NULL

    def _hash_after(self, parent: int, last_token: int) -> None:
        """Hash the next blocks of all requests that may continue a prefix as another request does.

        `parent` is the hash of the prefix, `last_token` the other request's last token of the block
        after it.
        """
        by_token = self._unhashed[parent]
        taken = [(token, by_token.pop(token, [])) for token in _alike(by_token, last_token)]
        if not by_token:
            del self._unhashed[parent]
        self._num_unhashed -= sum([len(continuing) for _, continuing in taken])
        for token, continuing in taken:
            for unhashed in continuing:
                first, end = unhashed.hash_next(self._block_size)
                if first < end:
                    # The pool must know the blocks before: `_drop_evicted` asks it.
                    self._add_hashes(unhashed, first, end)
                    self._note_begin(parent, token, unhashed.hashes.at(first))
                    self._note_path(unhashed)
                if not unhashed.is_exhausted:
                    self._add(unhashed)

    def _add_hashes(self, table: FullAttentionTable, first: int, end: int) -> None:
        """Tell the pool of the blocks from `first` to `end`, which have just been hashed."""
        pool, hashes = self._pool, table.hashes.values[first:end]
        salted = hashes ^ np.uint64(self._salt) if self._salt else hashes
        blocks, full_at = table.hashed[first:end], table.filled_at(first, end)
        equal = pool.add_hashes(salted, blocks, full_at, table.number, table.group)
        for place, other in equal:
            self._note_equal(table, first + place)
            self._note_equal(self._paths[int(pool.number_of[other])], first + place)
        listed: list[int] = hashes.tolist()
        if not self._unhashed.keys().isdisjoint(listed):
            self._note_waiting([each for each in listed if each in self._unhashed])

    def _note_begin(self, parent: int, token: int, begin: int) -> None:
        self._begins.setdefault((parent, token), set()).add(begin ^ self._salt)
        if len(self._begins) > self._most_begins:
            self._drop_evicted()

    def _note_equal(self, table: FullAttentionTable, place: int) -> None:
        """A table's block has the hash of another one, so that it may be evicted before the next.

        Then the next block can be found behind the other one.
        """
        if place + 1 < len(table.hashed):
            hashes = table.hashes
            self._note_begin(hashes.at(place), ANY_TOKEN, hashes.at(place + 1))

    def _drop_evicted(self) -> None:
        known = self._pool.block_of_hash.keys()
        kept = ((begin, known & hashes) for begin, hashes in self._begins.items())
        self._begins = {begin: hashes for begin, hashes in kept if hashes}
        self._most_begins = 2 * len(self._begins) + _MOST_EXHAUSTED

    def _drop_exhausted(self) -> None:
        kept: dict[int, dict[int, list[FullAttentionTable]]] = {}
        num_kept = 0
        for parent, by_token in self._unhashed.items():
            for token, same in by_token.items():
                left = [unhashed for unhashed in same if not unhashed.is_exhausted]
                if left:
                    kept.setdefault(parent, {})[token] = left
                    num_kept += len(left)
        self._unhashed = kept
        self._num_unhashed = num_kept
        self._most_unhashed = 2 * num_kept + _MOST_EXHAUSTED


def _alike(by_token: dict[int, list[FullAttentionTable]], token: int) -> list[int]:
    return list(by_token) if token == ANY_TOKEN else [token, ANY_TOKEN]

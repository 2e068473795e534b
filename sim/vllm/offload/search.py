"""How much of a waiting request is in CPU memory, for all groups of layers.

Layers with full attention need all chunks of a prefix. Others need the last ones only: those of a
window or of a chunk of attention, or one state. A load ends where all groups can go on.

vLLM 0.33.0: `_lookup_complete_chunks`, `_maximal_prefix_lookup`, `_sliding_window_lookup`
(distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py);
`get_sliding_window_size_in_chunks` (offloading/config.py).
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from sim.vllm.cache.single_type_manager import FULL, MAMBA, KVCacheSpec, SingleTypeManager
from sim.vllm.config import VllmConfig
from sim.vllm.offload.host_memory import COMING, MISSING, READY, HostMemory
from sim.vllm.offload.offloaded import Offloaded
from sim.vllm.offload.policies import Access, ChunkKey
from sim.vllm.request import NULL, RequestBlocks
from sim.vllm.scheduler.step_limits import EAGLE_METHODS


class OffloadGroup:
    """A group of layers, in chunks.

    Attributes:
        number: its place among the groups.
        is_sparse: it needs the last chunks of a prefix only.
        has_states: it keeps states, which the KV memory hands over one by one.
        num_needed: chunks that it needs of a prefix; 0: all. vLLM counts one more for a prefix that
            ends inside a chunk. It would change nothing: such a prefix ends a token before its
            chunk does, so the next token's window ends with the chunk, and lies in `num_needed`.
        has_drafter: an EAGLE drafter may still change the last chunk of what is found or stored.
    """

    def __init__(
        self, number: int, spec: KVCacheSpec, chunk_tokens: int, *, has_drafter: bool
    ) -> None:
        self.number = number
        self.has_drafter = has_drafter
        self.is_sparse = spec.kind != FULL
        self.has_states = spec.kind == MAMBA
        size = 1 if self.has_states else spec.size
        self.num_needed = -(-size // chunk_tokens)


def offload_groups(
    config: VllmConfig, specs: Sequence[KVCacheSpec], chunk_tokens: int
) -> list[OffloadGroup]:
    """The groups of layers of a server; the only one has the drafter's layers, too."""
    drafts = config.speculation
    has_eagle = drafts is not None and drafts.method in EAGLE_METHODS
    drops = has_eagle and config.rules.offloads_parts
    return [
        OffloadGroup(
            number, spec, chunk_tokens, has_drafter=drops and (spec.has_drafter or len(specs) == 1)
        )
        for number, spec in enumerate(specs)
    ]


class ChunkSearch:
    """Looks for chunks of all groups."""

    def __init__(
        self,
        host: HostMemory,
        groups: Sequence[OffloadGroup],
        block_size: int,
        blocks_per_chunk: int,
    ) -> None:
        self._host = host
        self._groups = groups
        self._block_size = block_size
        self._blocks_per_chunk = blocks_per_chunk
        self._chunk_tokens = block_size * blocks_per_chunk
        self._has_states = any(group.has_states for group in groups)
        self._sparse = [group for group in groups if group.is_sparse]
        self._sparse.sort(key=lambda group: -group.num_needed)
        self._ordered = [group for group in groups if not group.is_sparse] + self._sparse
        # Of the request that is looked at.
        self._access = Access()

    def key(self, kv: RequestBlocks, place: int, group: int) -> ChunkKey:
        """The name of a request's chunk."""
        num_blocks = (place + 1) * self._blocks_per_chunk
        kv.hash_blocks(num_blocks, self._block_size)
        return ChunkKey(place, group, kv.hashes.at(num_blocks - 1))

    def keys(self, kv: RequestBlocks, num_chunks: int) -> list[ChunkKey]:
        """The names of a request's first chunks; of a server with one group of layers."""
        return [self.key(kv, place, 0) for place in range(num_chunks)]

    def num_loadable(
        self,
        kv: RequestBlocks,
        num_tokens: int,
        num_found: int,
        being_loaded: AbstractSet[ChunkKey],
        access: Access,
    ) -> int | None:
        """How many tokens behind the first `num_found` the request of `access` can load.

        None: chunks that it needs are being written, or are in `being_loaded`, or it is not known
        where they are.
        """
        self._access = access
        if self._host.notes_uses:
            self._note_use(kv, num_tokens // self._chunk_tokens, num_found)
        most = num_tokens
        if self._sparse:
            # The last token is computed again, and its window must still be there.
            most -= 1
            if self._has_states:
                most -= most % self._chunk_tokens
        num_more = self._agree(kv, num_tokens // self._chunk_tokens, most, num_found)
        if num_more and being_loaded:
            for group in self._groups:
                for place in self.places(group, num_found, num_found + num_more):
                    if self.key(kv, place, group.number) in being_loaded:
                        return None
        return num_more

    def _note_use(self, kv: RequestBlocks, num_chunks: int, num_found: int) -> None:
        """A request asks for its chunks; it looks them up if it lacks as much as one of them."""
        size = self._chunk_tokens
        lacks_one = num_chunks * size - num_found >= size
        num_sought = num_chunks - num_found // size if lacks_one else 0
        self._host.use(self.keys(kv, num_chunks), num_sought)

    def parts_to_load(
        self, kv: RequestBlocks, num_found: int, num_tokens: int
    ) -> tuple[list[ChunkKey], list[int]]:
        """The chunks that a load of tokens behind the first `num_found` copies, and its blocks."""
        size, end = self._block_size, -(-num_tokens // self._block_size)
        keys: list[ChunkKey] = []
        new: list[int] = []
        for group in self._groups:
            blocks = kv.tables[group.number].blocks_from(0)
            first = num_found // size
            while first < end and blocks[first] == NULL:
                first += 1
            new += blocks[first:end]
            if first < end:
                places = range(
                    first // self._blocks_per_chunk, -(-num_tokens // self._chunk_tokens)
                )
                keys += [self.key(kv, place, group.number) for place in places]
        return keys, new

    def places(self, group: OffloadGroup, num_found: int, num_tokens: int) -> range:
        """The chunks that a load of the tokens behind the first `num_found` looks at."""
        first, end = num_found // self._chunk_tokens, -(-num_tokens // self._chunk_tokens)
        if group.is_sparse:
            first = max(first, end - group.num_needed)
        return range(first, end)

    def _agree(self, kv: RequestBlocks, num_chunks: int, most: int, num_found: int) -> int | None:
        """`num_loadable`, whatever other requests are loading.

        The groups are asked in order, and each may shorten what those before it have found. Then
        they are asked again with the shorter prefix: all if a chunk is being written, else those
        that need only the last chunks of a prefix. The last chunk that a drafter's group finds is
        left out, once for a prefix; so it looks for one more.
        """
        size, num_more, waits = self._chunk_tokens, 0, False
        have_dropped: set[int] = set()
        asked = self._ordered
        while asked:
            again: list[OffloadGroup] = []
            has_asked_sparse = False
            for group in asked:
                most = min(most, num_chunks * size)
                if most - num_found < size:
                    return 0
                shorter = self._shorten(kv, group, num_chunks, most, num_found, have_dropped)
                waits = waits or shorter is None
                most = most if shorter is None else shorter
                if most - num_found < size:
                    return 0
                if most - num_found < num_more:
                    if not group.has_drafter:
                        have_dropped.clear()
                    if waits:
                        waits, again = False, self._ordered
                    elif has_asked_sparse and not again:
                        again = self._sparse
                has_asked_sparse = has_asked_sparse or group.is_sparse
                num_more = most - num_found
            asked = again
        return None if waits else num_more

    def _shorten(
        self,
        kv: RequestBlocks,
        group: OffloadGroup,
        num_chunks: int,
        most: int,
        num_found: int,
        have_dropped: set[int],
    ) -> int | None:
        """How many of the first `most` tokens the GPU and the group have; 0: it has no chunk.

        None: it is not known yet. `have_dropped`: groups that have left out their last chunk.
        """
        size, first = self._chunk_tokens, num_found // self._chunk_tokens
        drops = group.has_drafter and group.number not in have_dropped
        num_behind = int(drops)
        end = min(-(-most // size) + num_behind, num_chunks)
        hit = self._find(kv, group, first, end, group.num_needed + num_behind)
        if not hit:
            return hit
        if drops:
            have_dropped.add(group.number)
        return min(most, (first + hit - num_behind) * size)

    def _find(
        self, kv: RequestBlocks, group: OffloadGroup, first: int, end: int, num_needed: int
    ) -> int | None:
        """How many chunks from `first` on a hit has that ends before `end`; 0: there is none.

        None: a chunk of the hit is being written, or is not known yet. Even then all chunks that
        may be in the hit are looked up, because this begins to bring them up from the tier below.
        """
        if group.is_sparse:
            return self._last_run(kv, group, first, end, num_needed)
        num_hit, waits = 0, False
        for place in range(first, end):
            found = self._host.look_up(self.key(kv, place, group.number), self._access)
            if found == MISSING:
                break
            waits = waits or found != READY
            num_hit += 1
        return None if waits else num_hit

    def _last_run(
        self, kv: RequestBlocks, group: OffloadGroup, first: int, end: int, num_needed: int
    ) -> int | None:
        """As `_find`, of a hit that ends with `num_needed` chunks in a row, the last such ones.

        If there are none, the chunks in a row at the beginning are the hit, however few.
        """
        num_run, waits, is_writing = 0, False, False
        for place in range(end - 1, first - 1, -1):
            found = self._host.look_up(self.key(kv, place, group.number), self._access)
            if found in (READY, COMING):
                is_writing = is_writing or found == COMING
                num_run += 1
            else:
                waits = waits or found != MISSING
                num_run, is_writing = 0, False
            if num_run == num_needed:
                return None if waits or is_writing else place - first + num_run
        return None if waits or is_writing else num_run


def worth_storing(
    state: Offloaded, group: OffloadGroup, end: int, manager: SingleTypeManager[Any], per_chunk: int
) -> list[int]:
    """The next chunks of a group, before `end`, that a load may need, and whose blocks are there.

    `manager`: the group's; `per_chunk`: blocks of a chunk.
    """
    first = state.next_chunks[group.number]
    if end <= first:
        return []
    if not group.is_sparse:
        return list(range(first, end))
    kv, blocks = state.request.kv, state.blocks[group.number]
    boundaries = [kv.prompt_len - 1, kv.junction] if kv.junction else [kv.prompt_len - 1]
    worth = manager.are_worth_caching(
        first * per_chunk, end * per_chunk, boundaries, per_chunk, drops_last=group.has_drafter
    )
    places: list[int] = []
    for place in range(first, end):
        chunk = range(place * per_chunk, (place + 1) * per_chunk)
        wanted = [i for i in chunk if worth is None or worth[i - first * per_chunk]]
        has_last = blocks[chunk[-1]] != NULL
        if wanted and has_last and all(blocks[i] != NULL for i in wanted):
            places.append(place)
    return places

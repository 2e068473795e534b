"""Which chunks are in CPU memory, and which may leave it; what comes from, and goes to, below it.

vLLM 0.33.0: `CPUOffloadingManager` (v1/kv_offload/cpu/manager.py), `TieringOffloadingManager`
(v1/kv_offload/tiering/manager.py).
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from sim.core.errors import InvariantError
from sim.engine.page_pool import CacheListener
from sim.vllm.offload.events import ChunkEvents
from sim.vllm.offload.policies import Access, ArcPolicy, ChunkKey, LruPolicy, Policy, StoredChunk
from sim.vllm.offload.settings import MAX_TRACKED, OffloadSettings
from sim.vllm.offload.tiers import Tiers
from sim.vllm.request import RequestBlocks
from sim.vllm.version_rules import VllmRules

# What a lookup says of a chunk: it is nowhere; it can be loaded; it is being written to CPU memory;
# it is not known yet.
MISSING: Final = 0
READY: Final = 1
COMING: Final = 2
UNKNOWN: Final = 3


class OfferCounts:
    """How often chunks were offered, of those that were offered last."""

    def __init__(self, threshold: int) -> None:
        self._threshold = threshold
        self._counts: OrderedDict[ChunkKey, int] = OrderedDict()

    def count(self, keys: Sequence[ChunkKey]) -> None:
        """Chunks are offered together: none of them pushes another one out."""
        counts = self._counts
        known = [key for key in keys if key in counts]
        for key in known:
            counts.move_to_end(key)
            counts[key] += 1
        num_others = len(counts) - len(known)
        for key in keys:
            if key in counts:
                continue
            if len(counts) >= MAX_TRACKED:
                if not num_others:
                    continue
                counts.popitem(last=False)
                num_others -= 1
            counts[key] = 1

    def is_enough(self, key: ChunkKey) -> bool:
        return self._counts.get(key, 0) >= self._threshold


class HostMemory:
    """The chunks in CPU memory of one server.

    Attributes:
        num_chunks: chunks that it has room for.
        below: the tiers below it; None: there are none.
        events: tells a listener of chunks that can be found; None: nobody listens.
        notes_uses: what leaves depends on when chunks are used, and `use` has to be told of that
            (versions before 0.33.0). Otherwise on which requests have used them.
    """

    def __init__(
        self,
        settings: OffloadSettings,
        below: Tiers | None = None,
        rules: VllmRules | None = None,
    ) -> None:
        """`rules`: those of the version; None: of the newest."""
        rules = rules or VllmRules()
        self.num_chunks = settings.num_chunks
        self.below = below
        self.events: ChunkEvents | None = None
        self.notes_uses = not rules.ranks_by_request
        self._counts_offers = rules.counts_offers
        self._when_written = COMING if rules.waits_for_stores else MISSING
        self._policy: Policy = LruPolicy()
        if settings.eviction_policy == "arc":
            self._policy = ArcPolicy(settings.num_chunks, takes_either=rules.ranks_by_request)
        self._num_idle = 0
        self._counts: OfferCounts | None = None
        if settings.store_threshold >= 2:
            self._counts = OfferCounts(settings.store_threshold)

    def __len__(self) -> int:
        """Chunks in CPU memory, those that are being written included."""
        return len(self._policy)

    @property
    def num_idle(self) -> int:
        """Chunks that may leave."""
        return self._num_idle

    def find(self, key: ChunkKey) -> StoredChunk | None:
        return self._policy.find(key)

    def chunks(self) -> list[StoredChunk]:
        return list(self._policy.chunks())

    # ---- to the GPU ----------------------------------------------------------------------------

    def look_up(self, key: ChunkKey, access: Access) -> int:
        """Where a chunk is that a waiting request needs.

        One that the tier below has gets room in CPU memory at once, if other chunks may leave.
        """
        chunk = self._policy.find(key)
        if chunk is not None:
            return READY if chunk.is_ready else self._when_written
        if self.below is None:
            return MISSING
        is_below = self.below.look_up(key, access)
        if is_below is None:
            return UNKNOWN
        if not is_below or self._insert([key], access) is None:
            return MISSING
        self.below.promote(key, access)
        return COMING

    def use(self, keys: Sequence[ChunkKey], num_sought: int = 0) -> None:
        """With `notes_uses`: a request asks for its chunks, or has stored some of them.

        `keys` are all of its chunks so far; the last `num_sought` are looked up now.
        """
        access = Access()
        for key in keys:
            chunk = self._policy.find(key)
            if chunk is None:
                access.missed.add(key)
            else:
                (access.reused if chunk.is_ready else access.inserted).add(key)
        self._policy.missed([key for key in keys if key in access.missed])
        self._policy.request_ended([key for key in keys if key not in access.missed], access)
        if self._counts is not None:
            for key in keys[len(keys) - num_sought :]:
                self._counts.count([key])

    def load(self, keys: Sequence[ChunkKey], access: Access) -> None:
        """A request loads chunks that are ready: until `loaded`, they do not leave."""
        self._pin(keys)
        if not self.notes_uses:
            self._note(keys, access, reused=keys)

    def _pin(self, keys: Sequence[ChunkKey]) -> None:
        for key in keys:
            chunk = self._known(key)
            self._num_idle -= chunk.is_idle
            chunk.num_loads += 1

    def _known(self, key: ChunkKey) -> StoredChunk:
        """A chunk that is there: those that are being written or read do not leave."""
        chunk = self._policy.find(key)
        if chunk is None:
            raise InvariantError(f"a chunk of CPU memory has left while it was used: {key}")
        return chunk

    def loaded(self, keys: Sequence[ChunkKey]) -> None:
        """Chunks have been read: they may leave."""
        for key in keys:
            chunk = self._known(key)
            chunk.num_loads -= 1
            if chunk.is_idle:
                self._num_idle += 1
                self._policy.became_idle(key)

    # ---- from the GPU --------------------------------------------------------------------------

    def store(self, keys: Sequence[ChunkKey], access: Access) -> list[ChunkKey] | None:
        """A request offers chunks; returns those to be copied, for which there is room now.

        None: there is no room, also not after others have left.
        """
        new = self._insert(keys, access)
        access.num_stores += bool(new)
        return new

    def _insert(self, keys: Sequence[ChunkKey], access: Access) -> list[ChunkKey] | None:
        counts = self._counts
        if counts is not None and self._counts_offers:
            counts.count(keys)
        elif counts is not None:
            keys = [key for key in keys if counts.is_enough(key)]
        new, ready = self._partition(keys)
        if self.notes_uses:
            access = Access()
        else:
            self._note_offer(keys, new, ready, access)
        if not new:
            return []
        num_missing = len(new) - (self.num_chunks - len(self._policy))
        if num_missing > 0:
            if num_missing > self._num_idle:
                return None
            gone = self._policy.evict(num_missing, set(keys))
            if gone is None:
                return None
            self._num_idle -= num_missing
            if self.events is not None:
                self.events.removed(gone)
        for key in new:
            self._policy.insert(key, StoredChunk(), access)
        access.inserted.update(new)
        return new

    def _note_offer(
        self,
        keys: Sequence[ChunkKey],
        new: Sequence[ChunkKey],
        ready: Sequence[ChunkKey],
        access: Access,
    ) -> None:
        missed = [key for key in new if key not in access.missed]
        if missed:
            self._policy.missed(missed)
            access.missed.update(missed)
        noted = {*new, *ready}
        self._note([key for key in keys if key in noted], access, reused=ready)

    def _partition(self, keys: Sequence[ChunkKey]) -> tuple[list[ChunkKey], list[ChunkKey]]:
        """Of offered chunks, those to be stored, and those that are there and ready."""
        new: list[ChunkKey] = []
        ready: list[ChunkKey] = []
        for key in keys:
            chunk = self._policy.find(key)
            if chunk is not None:
                if chunk.is_ready:
                    ready.append(key)
            elif self._counts is None or self._counts.is_enough(key):
                new.append(key)
        return new, ready

    def stored(self, keys: Sequence[ChunkKey], access: Access) -> None:
        """Chunks have been copied from the GPU: they can be found, and go to the tier below."""
        self._written(keys)
        for _ in range(0 if self.below is None else self.below.write(keys)):
            self._pin(keys)
        access.num_stores -= 1
        self._forget(access)

    def _written(self, keys: Sequence[ChunkKey]) -> None:
        if self.events is not None:
            self.events.came(keys)
        for key in keys:
            chunk = self._known(key)
            chunk.num_loads = 0
            self._num_idle += 1
            self._policy.became_idle(key)

    # ---- events --------------------------------------------------------------------------------

    def listen(self, listener: CacheListener, block_size: int, blocks_per_chunk: int) -> None:
        """Tell a listener from now on which blocks are in CPU memory, which must be empty."""
        self.events = ChunkEvents(
            listener, block_size, blocks_per_chunk, remembers=self.below is not None
        )

    def tokens_end(self, kv: RequestBlocks, num_chunks: int) -> None:
        """A request ends: the tokens of its first chunks can be read only now."""
        if self.events is not None:
            self.events.ended(kv, num_chunks)

    def copies_end(self, kv: RequestBlocks) -> None:
        """The copies of a request that has ended have ended."""
        if self.events is not None:
            self.events.forget(kv)

    # ---- requests ------------------------------------------------------------------------------

    def _note(
        self, keys: Sequence[ChunkKey], access: Access, *, reused: Sequence[ChunkKey]
    ) -> None:
        new = [key for key in keys if key not in access.seen]
        if new:
            access.seen.update(dict.fromkeys(new))
            self._policy.accessed(new, access)
        access.reused.update([key for key in reused if key not in access.inserted])

    def request_ended(self, access: Access) -> None:
        self._policy.request_ended(sorted(access.seen), access)
        access.is_over = True
        self._forget(access)

    def _forget(self, access: Access) -> None:
        if self.below is not None and access.is_over and not access.num_stores:
            self.below.forget(access)

    # ---- the tiers below -----------------------------------------------------------------------

    @property
    def has_jobs(self) -> bool:
        """A tier reads or writes, as far as the scheduler knows."""
        return self.below is not None and self.below.has_jobs

    @property
    def awaits_tiers(self) -> bool:
        """A tier has something to tell the scheduler, now or later."""
        return self.has_jobs or (self.below is not None and self.below.is_asked)

    def begin_decision(self, now_ns: int) -> None:
        """The scheduler learns what the tiers have done."""
        if self.below is None:
            return
        for job in self.below.begin_decision(now_ns):
            if not job.is_load:
                self.loaded(job.keys)
                continue
            self._written(job.keys[: job.num_done])
            for key in job.keys[job.num_done :]:
                self._policy.remove(key)

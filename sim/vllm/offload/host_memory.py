"""Which chunks are in CPU memory, and which may leave it.

vLLM 0.33.0: `CPUOffloadingManager` (v1/kv_offload/cpu/manager.py).
"""

from collections import OrderedDict
from collections.abc import Sequence

from sim.vllm.offload.policies import Access, ArcPolicy, ChunkKey, LruPolicy, Policy, StoredChunk
from sim.vllm.offload.settings import MAX_TRACKED, OffloadSettings


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
    """The chunks in CPU memory of one server."""

    def __init__(self, settings: OffloadSettings) -> None:
        self.num_chunks = settings.num_chunks
        self._policy: Policy = LruPolicy()
        if settings.eviction_policy == "arc":
            self._policy = ArcPolicy(settings.num_chunks)
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

    def load(self, keys: Sequence[ChunkKey], access: Access) -> None:
        """A request loads chunks that are ready: until `loaded`, they do not leave."""
        for key in keys:
            chunk = self._policy.find(key)
            assert chunk is not None  # noqa: S101 - the same decision has found it
            self._num_idle -= chunk.is_idle
            chunk.num_loads += 1
        self._note(keys, access, reused=keys)

    def loaded(self, keys: Sequence[ChunkKey]) -> None:
        for key in keys:
            chunk = self._policy.find(key)
            assert chunk is not None  # noqa: S101 - it was read
            chunk.num_loads -= 1
            if chunk.is_idle:
                self._num_idle += 1
                self._policy.became_idle(key)

    # ---- from the GPU --------------------------------------------------------------------------

    def store(self, keys: Sequence[ChunkKey], access: Access) -> list[ChunkKey] | None:
        """A request offers chunks; returns those to be copied, for which there is room now.

        None: there is no room, also not after others have left.
        """
        if self._counts is not None:
            self._counts.count(keys)
        new, ready = self._partition(keys)
        missed = [key for key in new if key not in access.missed]
        if missed:
            self._policy.missed(missed)
            access.missed.update(missed)
        noted = {*new, *ready}
        self._note([key for key in keys if key in noted], access, reused=ready)
        if not new:
            return []
        num_missing = len(new) - (self.num_chunks - len(self._policy))
        if num_missing > 0:
            if num_missing > self._num_idle or self._policy.evict(num_missing, set(keys)) is None:
                return None
            self._num_idle -= num_missing
        for key in new:
            self._policy.insert(key, StoredChunk(), access)
        access.inserted.update(new)
        return new

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

    def stored(self, keys: Sequence[ChunkKey]) -> None:
        """Chunks have been written: they can be found, and may leave."""
        for key in keys:
            chunk = self._policy.find(key)
            assert chunk is not None  # noqa: S101 - what is being written does not leave
            chunk.num_loads = 0
            self._num_idle += 1
            self._policy.became_idle(key)

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

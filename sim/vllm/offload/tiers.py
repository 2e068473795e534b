"""The tiers below the CPU memory of one server, together.

All of them get what CPU memory has got. They are asked for a chunk in order, all at once: the first
one that is known to have it brings it up.

vLLM 0.33.0: `TieringOffloadingManager` (v1/kv_offload/tiering/manager.py).
"""

from collections.abc import Sequence
from typing import Final

from sim.engine.store import Store
from sim.vllm.offload.policies import Access, ChunkKey
from sim.vllm.offload.tier import SecondaryTier, TierJob


class Tiers:
    """All tiers below the CPU memory of one server; there is at least one.

    Attributes:
        tiers: in the order in which they are asked for a chunk.
    """

    def __init__(self, tiers: Sequence[SecondaryTier]) -> None:
        self.tiers: Final = tiers
        # The one that has the chunk that was looked up last.
        self._found = tiers[0]

    @property
    def stores(self) -> list[Store]:
        """The store of each tier."""
        return [tier.store for tier in self.tiers]

    def use(self, stores: Sequence[Store]) -> None:
        """Use other servers' stores; see `BaseScheduler.share_stores`."""
        for tier, store in zip(self.tiers, stores, strict=True):
            tier.use(store)

    def time_is(self, now_ns: int) -> None:
        """The scheduler learns of copies at this time."""
        for tier in self.tiers:
            tier.now_ns = now_ns

    def begin_decision(self, now_ns: int) -> list[TierJob]:
        """The scheduler learns what has happened; returns the jobs that are over."""
        return [job for tier in self.tiers for job in tier.begin_decision(now_ns)]

    def end_decision(self, now_ns: int) -> bool:
        """What the decision has asked for begins; returns whether chunks are read."""
        reads = [tier.end_decision(now_ns) for tier in self.tiers]
        return any(reads)

    def look_up(self, key: ChunkKey, access: Access) -> bool | None:
        """Whether a chunk is there; None: it is not known yet."""
        is_known = True
        for tier in self.tiers:
            found = tier.look_up(key, access)
            if found:
                self._found = tier
                return True
            is_known = is_known and found is not None
        return False if is_known else None

    def promote(self, key: ChunkKey, access: Access) -> None:
        """The chunk that was looked up last gets room in CPU memory."""
        self._found.promote(key, access)

    def write(self, keys: Sequence[ChunkKey]) -> int:
        """Write chunks that are in CPU memory; returns how many tiers do, and do not drop them."""
        return sum([tier.write(keys) for tier in self.tiers])

    def forget(self, access: Access) -> None:
        """A request is over, and nothing more is stored for it."""
        for tier in self.tiers:
            tier.forget(access)

    @property
    def has_jobs(self) -> bool:
        """Some tier reads or writes, as far as the scheduler knows."""
        return any(tier.jobs for tier in self.tiers)

    @property
    def is_asked(self) -> bool:
        """Some tier has got, or gets, something to look up or to read."""
        return any(tier.is_asked for tier in self.tiers)

    def next_ns(self) -> int | None:
        """The earliest time at which something may be over; None: nothing is under way."""
        times_ns = [tier.next_ns() for tier in self.tiers]
        return min([each for each in times_ns if each is not None], default=None)

"""Settings of KV offloading, as the scheduler gets them."""

from dataclasses import dataclass
from typing import Final, Literal

from sim.engine.store import StoreSettings

EvictionPolicy = Literal["lru", "arc"]
TierType = Literal["fs", "obj"]
# vLLM's classes that keep KV in CPU memory.
OffloadConnectorName = Literal["OffloadingConnector", "SimpleCPUOffloadConnector"]
SIMPLE: Final = "SimpleCPUOffloadConnector"

# Most chunks whose offers are counted (`max_tracker_size` of v1/kv_offload/cpu/spec.py).
MAX_TRACKED: Final = 64_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureSettings:
    """When a secondary tier is under pressure: `EMABackpressureDetector` of vLLM.

    Attributes:
        high_water_s, low_water_s: seconds for a MiB, above and below which it begins and ends.
        alpha: weight of the newest store in the moving average.
        warmup_completions: stores whose mean the average begins with.
        decay_half_life_s: without a store, half of the average is left after this long.
        cooldown_s: for how long every second store is dropped after the pressure has ended.
        failure_threshold: stores that fail in a row until there is pressure.
        drops_all: under pressure no store is made; else some are, the fewer the higher it is.
        chunk_bytes: size of a chunk.
    """

    high_water_s: float
    low_water_s: float
    alpha: float = 0.15
    warmup_completions: int = 10
    decay_half_life_s: float = 2.0
    cooldown_s: float = 1.0
    failure_threshold: int = 3
    drops_all: bool = False
    chunk_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSettings:
    """A tier below CPU memory.

    Attributes:
        kind: `fs`: a thread reads or writes the chunks of a job one after another. `obj`: all jobs
            are under way at once, and each succeeds or fails as a whole.
        n_read_threads, n_write_threads: of `fs`: threads that take loads first, and stores first.
        pressure: when stores are dropped; None: never.
        store: how large and how fast it is; a page is a chunk. None: as the scenario's `store`.
    """

    kind: TierType
    n_read_threads: int = 16
    n_write_threads: int = 16
    pressure: PressureSettings | None = None
    store: StoreSettings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadSettings:
    """KV offloading of one server.

    Attributes:
        connector: vLLM's class. `SimpleCPUOffloadConnector` has only `num_chunks`, chunks of one
            block, `lazy_offload` and `copy_ns_per_token`.
        num_chunks: chunks that CPU memory has room for.
        blocks_per_chunk: blocks of a chunk, the smallest unit that is stored.
        eviction_policy: which chunks leave CPU memory when it is full.
        store_threshold: how often a chunk must be offered before it is stored; below 2: once.
        offload_prompt_only: chunks with output tokens are not stored.
        copy_ns_per_token: time to copy a token's KV, in either direction.
        sync_load_tokens: most tokens for whose loads a step waits.
        tiers: those below CPU memory, in the order in which vLLM asks them for a chunk.
        lazy_offload: blocks are stored when they are about to leave the GPU, not once computed.
    """

    connector: OffloadConnectorName = "OffloadingConnector"
    num_chunks: int
    blocks_per_chunk: int = 1
    eviction_policy: EvictionPolicy = "lru"
    store_threshold: int = 0
    offload_prompt_only: bool = True
    copy_ns_per_token: float = 0.0
    sync_load_tokens: int = 0
    tiers: tuple[TierSettings, ...] = ()
    lazy_offload: bool = False

    @property
    def is_simple(self) -> bool:
        return self.connector == SIMPLE

"""Settings of KV offloading, as the scheduler gets them."""

from dataclasses import dataclass
from typing import Final, Literal

EvictionPolicy = Literal["lru", "arc"]

# Most chunks whose offers are counted (`max_tracker_size` of v1/kv_offload/cpu/spec.py).
MAX_TRACKED: Final = 64_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadSettings:
    """KV offloading of one server.

    Attributes:
        num_chunks: chunks that CPU memory has room for.
        blocks_per_chunk: blocks of a chunk, the smallest unit that is stored.
        eviction_policy: which chunks leave CPU memory when it is full.
        store_threshold: how often a chunk must be offered before it is stored; below 2: once.
        offload_prompt_only: chunks with output tokens are not stored.
        copy_ns_per_token: time to copy a token's KV, in either direction.
        sync_load_tokens: most tokens for whose loads a step waits.
    """

    num_chunks: int
    blocks_per_chunk: int = 1
    eviction_policy: EvictionPolicy = "lru"
    store_threshold: int = 0
    offload_prompt_only: bool = True
    copy_ns_per_token: float = 0.0
    sync_load_tokens: int = 0

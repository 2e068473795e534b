"""Settings of the host tier."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostCacheSettings:
    """Settings of the memory that evicted KV goes to.

    Attributes:
        capacity_tokens: KV tokens it has room for; whole pages.
        write_after_uses: a node is copied as soon as so many requests have used it; None: when it
            is evicted (write-back).
        load_back_threshold_tokens: fewer tokens are computed again rather than loaded.
    """

    capacity_tokens: int
    write_after_uses: int | None
    load_back_threshold_tokens: int

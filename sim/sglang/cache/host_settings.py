"""Settings of the host memory below the radix cache."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostCacheSettings:
    """Settings of the host memory that holds KV evicted from the device.

    Attributes:
        capacity_tokens: KV tokens that it has room for; whole pages.
        write_after_uses: a node is copied to host memory once this many requests have used it;
            None: when it is evicted from the device (write-back).
        load_back_threshold_tokens: a shorter part in host memory is computed again, not loaded.
        copy_ns_per_token: time to copy a token's KV in either direction; 0: copies take no time.
    """

    capacity_tokens: int
    write_after_uses: int | None
    load_back_threshold_tokens: int
    copy_ns_per_token: float = 0.0

"""Settings of the host memory below the radix cache."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostCacheSettings:
    """Settings of the host memory that holds KV evicted from the device.

    Attributes:
        capacity_tokens: KV tokens of layers without a window that fit; whole pages.
        write_after_uses: a node is copied to host memory once this many requests have used it;
            None: when it is evicted from the device (write-back).
        load_back_threshold_tokens: a shorter part in host memory is computed again, not loaded.
        copy_ns_per_token: time to copy a token's KV of all layers in either direction; 0: copies
            take no time.
        full_share: the part of it that is KV of layers without a window, if those with one have a
            pool of their own.
        state_tokens: a state takes as long to copy as this many tokens.
        ratio: how large the pools of windows and of states are, as a multiple of those on the
            device.
    """

    capacity_tokens: int
    write_after_uses: int | None
    load_back_threshold_tokens: int
    copy_ns_per_token: float = 0.0
    full_share: float = 1.0
    state_tokens: float = 0.0
    ratio: float = 1.0

    def num_units(self, num_on_device: int, page_size: int) -> int:
        """The size of a part's pool in host memory.

        Whole pages and one more, as in SGLang 0.5.23 (mem_cache/pool_host/base.py and mamba.py).
        """
        return int(num_on_device * self.ratio) // page_size * page_size + page_size

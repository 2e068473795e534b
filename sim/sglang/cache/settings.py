"""Settings of the parts of the KV memory: windows, states, host memory."""

from dataclasses import dataclass

from sim.engine.store import StoreSettings
from sim.sglang.request import StateSlot


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """Settings of the pool that holds the KV of layers with a sliding window.

    Attributes:
        window: a token of these layers attends to this many tokens before it (SGLang's
            `sliding_window_size`: the checkpoint's number, or one less).
        pool_tokens: size of the pool; whole pages.
        eviction_interval: a decoding request gives back what has left its window once this many
            tokens have left it.
        retraction_host_tokens: on a decode server, host memory for the windows of retracted
            requests, in tokens; None: it never runs out.
    """

    window: int
    pool_tokens: int
    eviction_interval: int
    retraction_host_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class StateSettings:
    """Settings of the pool that holds the states of requests and of cached prefixes.

    Attributes:
        num_states: size of the pool.
        num_tracked: states that a request has beside its own: the latest ones that the prefix cache
            may keep. 0: no such states; the cache gets a copy of the request's own state.
        checkpoint_tokens: with tracked states, tokens between the states that a prefill can track.
        track_tokens: with tracked states, tokens between the states that decode steps track.
        kernel_tokens: with tracked states, tokens between the states that the kernels compute.
    """

    num_states: int
    num_tracked: int
    checkpoint_tokens: int
    track_tokens: int
    kernel_tokens: int

    def last_tracked(self, slot: StateSlot, num_computed: int) -> int:
        """Tokens before the latest state that a request has tracked; 0: none to insert.

        `num_computed` of its tokens are known to be computed. Decode steps track every multiple of
        `track_tokens` behind its last prefill, but for mixed steps; with drafts, `verified` has
        noted what they track.
        """
        if self.num_tracked and not slot.verified_len:
            last = num_computed // self.track_tokens * self.track_tokens
            while last in slot.untracked:
                last -= self.track_tokens
            if last > slot.prefilled_len:
                return last
        return slot.tracked_len


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """Settings of the storage below host memory.

    Attributes:
        store: how large and how fast it is.
        prefetch_policy: what a request that could be admitted does while its prompt is fetched:
            best_effort: it ends the fetch; wait_complete: it waits; timeout: it waits for a time.
        prefetch_threshold: fewer tokens are not fetched.
        timeout_ns, timeout_ns_per_page: that time, and what each page that is looked up adds to it.
        retry_interval: passes after which the prompt of a waiting request is looked up again; 0: it
            is not.
        most_lookups: how often at most.
    """

    store: StoreSettings
    prefetch_policy: str = "timeout"
    prefetch_threshold: int = 256
    timeout_ns: float = 1e9
    timeout_ns_per_page: float = 0.0
    retry_interval: int = 8
    most_lookups: int = 8


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
        storage: what is below host memory; None: nothing.
    """

    capacity_tokens: int
    write_after_uses: int | None
    load_back_threshold_tokens: int
    copy_ns_per_token: float = 0.0
    full_share: float = 1.0
    state_tokens: float = 0.0
    ratio: float = 1.0
    storage: StorageSettings | None = None

    def num_units(self, num_on_device: int, page_size: int) -> int:
        """The size of a part's pool in host memory.

        Whole pages and one more, as in SGLang 0.5.23 (mem_cache/pool_host/base.py and mamba.py).
        """
        return int(num_on_device * self.ratio) // page_size * page_size + page_size

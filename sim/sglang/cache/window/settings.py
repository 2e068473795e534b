"""Settings of the second KV pool: that of layers with a sliding window."""

from dataclasses import dataclass


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

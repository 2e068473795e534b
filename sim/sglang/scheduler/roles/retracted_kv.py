"""Host memory for the KV of requests that a decode server has retracted.

Source: SGLang 0.5.23, `backup_kv_cache` and `restore_kv_cache` in mem_cache/common.py and
mem_cache/unified_radix_cache.py.
"""

from sim.sglang.config import SchedulerConfig


class RetractedKV:
    """What is kept of retracted requests, in whole pages.

    Attributes:
        used_tokens: tokens of the pages that are in use.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        """Of the settings, those of host memory are read; without its size it never runs out."""
        self.used_tokens = 0
        self._capacity_tokens = config.retraction_host_tokens
        self._page_size = config.page_size
        # Of layers with a window, their window is kept, in a host pool of their own.
        self._window = config.window
        self._used_window_tokens = 0
        self._kept: dict[str, tuple[int, int]] = {}

    def keep(self, rid: str, num_tokens: int) -> bool:
        """Copy a request's KV to host memory; False: it does not fit, and is lost."""
        num_window = 0
        page_size = self._page_size
        end = -(-num_tokens // page_size) * page_size
        if self._window is not None:
            num_window = end - max(num_tokens - self._window.window, 0) // page_size * page_size
        used, used_window = self.used_tokens + end, self._used_window_tokens + num_window
        if _exceeds(used, self._capacity_tokens):
            return False
        if self._window is not None and _exceeds(used_window, self._window.retraction_host_tokens):
            return False
        self._kept[rid] = (end, num_window)
        self.used_tokens, self._used_window_tokens = used, used_window
        return True

    def drop(self, rid: str) -> None:
        """A request has its KV on the device again, or has ended."""
        num_tokens, num_window = self._kept.pop(rid)
        self.used_tokens -= num_tokens
        self._used_window_tokens -= num_window


def _exceeds(num_tokens: int, capacity_tokens: int | None) -> bool:
    return capacity_tokens is not None and num_tokens > capacity_tokens

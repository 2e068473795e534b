"""Host memory for the KV of requests that a decode server has retracted.

Source: SGLang 0.5.23, `backup_kv_cache` and `restore_kv_cache` in mem_cache/common.py.
"""


class RetractedKV:
    """What is kept of retracted requests, in whole pages.

    Attributes:
        used_tokens: tokens of the pages that are in use.
    """

    def __init__(self, capacity_tokens: int | None, page_size: int) -> None:
        """`capacity_tokens`: whole pages; None: host memory never runs out."""
        self.used_tokens = 0
        self._capacity_tokens = capacity_tokens
        self._page_size = page_size
        self._kept: dict[str, int] = {}

    def keep(self, rid: str, num_tokens: int) -> bool:
        """Copy a request's KV to host memory; False: it does not fit, and is lost."""
        num_tokens = -(-num_tokens // self._page_size) * self._page_size
        used_tokens = self.used_tokens + num_tokens
        if self._capacity_tokens is not None and used_tokens > self._capacity_tokens:
            return False
        self._kept[rid] = num_tokens
        self.used_tokens = used_tokens
        return True

    def drop(self, rid: str) -> None:
        """A request has its KV on the device again, or has ended."""
        self.used_tokens -= self._kept.pop(rid)

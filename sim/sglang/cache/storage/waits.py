"""How long requests that could be admitted wait for their fetches under policy `timeout`.

Follows SGLang 0.5.23: `_start_storage_prefetch_wait` and `_prefetch_deadline_expired` in
mem_cache/unified_radix_cache.py.
"""

from collections.abc import Container

from sim.sglang.cache.settings import StorageSettings


class _Wait:
    def __init__(self, last_ns: int) -> None:
        """It lasts until `last_ns`."""
        self.last_ns = last_ns
        self.is_over = False


class Waits:
    """The waits, by the requests' ids."""

    def __init__(self, settings: StorageSettings) -> None:
        self._settings = settings
        self._waits: dict[str, _Wait] = {}

    def begin(self, rid: str, num_pages: int, now_ns: int) -> None:
        """A request that could be admitted waits for a fetch of `num_pages` pages.

        The time counts from the first such pass, whatever is fetched for the request later.
        """
        if rid not in self._waits:
            settings = self._settings
            timeout_ns = settings.timeout_ns + num_pages * settings.timeout_ns_per_page
            self._waits[rid] = _Wait(now_ns + int(timeout_ns))

    def is_late(self, rid: str, now_ns: int) -> bool:
        wait = self._waits.get(rid)
        return wait is not None and now_ns > wait.last_ns

    def end(self, rid: str) -> None:
        """The request is late, and is not looked up again."""
        self._waits[rid].is_over = True

    def is_over(self, rid: str) -> bool:
        wait = self._waits.get(rid)
        return wait is not None and wait.is_over

    def forget(self, rid: str) -> None:
        self._waits.pop(rid, None)

    def next_ns(self, rids: Container[str], now_ns: int) -> int | None:
        """When the first of these requests that is not late yet will be; None: none will."""
        times = [
            wait.last_ns + 1
            for rid, wait in self._waits.items()
            if rid in rids and not wait.is_over and wait.last_ns >= now_ns
        ]
        return min(times) if times else None

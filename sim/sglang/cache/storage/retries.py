"""When waiting requests are looked up in the store again, because it had nothing for them yet.

Follows SGLang 0.5.23's `StoragePrefetchRetries` in mem_cache/storage_prefetch.py.
"""

from collections.abc import Sequence

from sim.sglang.request import SglangRequest


class _Retry:
    """A lookup to come.

    Attributes:
        known_end: the pages up to this token are known to be in the store; None: nothing is known.
        due: the pass that makes it; None: the first pass that meets the request will set it.
    """

    def __init__(self, request: SglangRequest, known_end: int | None) -> None:
        self.request = request
        self.known_end = known_end
        self.due: int | None = None


class Retries:
    """The lookups to come, by the requests' ids."""

    def __init__(self, interval: int, most: int) -> None:
        """`interval`: passes between two lookups; 0: there are none. `most`: of a request."""
        self._interval = interval
        self._most = most
        self._pass = 0
        self._retries: dict[str, _Retry] = {}

    @property
    def are_coming(self) -> bool:
        """Whether some are for requests of the waiting queue, so that passes bring them nearer."""
        return any(retry.request.entry for retry in self._retries.values())

    def add(self, request: SglangRequest, known_end: int | None = None) -> None:
        self._retries[request.rid] = _Retry(request, known_end)

    def cancel(self, request: SglangRequest) -> None:
        self._retries.pop(request.rid, None)

    def take_due(self, waiting: Sequence[SglangRequest]) -> list[tuple[SglangRequest, int | None]]:
        """Begin a pass; returns the requests to look up now, in the order of the queue.

        The first one of the queue is not looked up again: it is not to wait for that.
        """
        self._pass += 1
        if not (waiting and self._retries):
            return []
        self.cancel(waiting[0])
        next_pass = self._pass + 1
        if all((retry.due or 0) >= next_pass for retry in self._retries.values()):
            return []
        due: list[tuple[SglangRequest, int | None]] = []
        for request in waiting:
            retry = self._retries.get(request.rid)
            if retry is None:
                continue
            if request.num_lookups >= self._most or self._interval <= 0:
                self.cancel(request)
                continue
            if retry.due is None:
                retry.due = self._pass + self._interval
            if retry.due <= self._pass:
                self.cancel(request)
                due.append((request, retry.known_end))
        return due

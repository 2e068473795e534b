"""When requests may join a batch, and which running requests decode: static batches, turns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sim.sglang.request import SglangBatch, SglangRequest

_NO_LIMIT = 2**62


@dataclass(frozen=True, slots=True)
class StaticSettings:
    """Settings of static batching.

    Attributes:
        batch_size: most requests of a batch; a batch starts as soon as so many wait.
        max_wait_ns: a smaller batch starts when its oldest request has waited so long.
    """

    batch_size: int
    max_wait_ns: int


class Batching(Protocol):
    """Says whether, and how many, waiting requests the next pass may admit."""

    @property
    def num_open_places(self) -> int:
        """The most requests that may be admitted until `may_join` is asked again."""
        ...

    def may_join(self, waiting: Sequence[SglangRequest], now_ns: int, *, is_idle: bool) -> bool:
        """Whether a pass may admit anybody; may start a batch.

        Args:
            waiting: at least one request, in any order.
            now_ns: time of the pass.
            is_idle: no request runs, and no result is awaited.
        """
        ...

    def note_admitted(self, num_requests: int) -> None:
        """So many requests were."""
        ...

    def note_decode(self) -> None:
        """A pass launched no prefill, so that the batch decodes."""
        ...

    def start_ns(self, waiting: Sequence[SglangRequest]) -> int | None:
        """When an idle server goes on though nobody arrives; None: it waits for nothing."""
        ...


class ContinuousBatching:
    """Requests join at every pass, as in SGLang."""

    num_open_places = _NO_LIMIT

    def may_join(self, waiting: Sequence[SglangRequest], now_ns: int, *, is_idle: bool) -> bool:
        return True

    def note_admitted(self, num_requests: int) -> None:
        pass

    def note_decode(self) -> None:
        pass

    def start_ns(self, waiting: Sequence[SglangRequest]) -> int | None:
        return None


class StaticBatching:
    """A batch starts together, and all of it ends before the next one starts.

    Its prefill may take several passes; its first decode step closes it. Rows that finish sooner
    are answered at once, but nobody takes their places: the batch gets emptier as it goes on.
    """

    def __init__(self, settings: StaticSettings) -> None:
        self._settings = settings
        self.num_open_places = 0

    def may_join(self, waiting: Sequence[SglangRequest], now_ns: int, *, is_idle: bool) -> bool:
        if not self.num_open_places and is_idle and self._starts(waiting, now_ns):
            self.num_open_places = min(self._settings.batch_size, len(waiting))
        return self.num_open_places > 0

    def _starts(self, waiting: Sequence[SglangRequest], now_ns: int) -> bool:
        return len(waiting) >= self._settings.batch_size or now_ns >= self.start_ns(waiting)

    def note_admitted(self, num_requests: int) -> None:
        self.num_open_places = max(self.num_open_places - num_requests, 0)

    def note_decode(self) -> None:
        self.num_open_places = 0

    def start_ns(self, waiting: Sequence[SglangRequest]) -> int:
        return min(request.spec.arrival_ns for request in waiting) + self._settings.max_wait_ns


def build_batching(settings: StaticSettings | None) -> Batching:
    """The batching that these settings ask for; None: continuous."""
    return ContinuousBatching() if settings is None else StaticBatching(settings)


class DecodeTurns:
    """Keeps a decode step to `most` rows; the others rest, and hold their KV meanwhile.

    Turns go round: who has rested longest decodes next. Between a decision and the next one the
    running batch holds the rows whose turn it is; while one is made it holds all.

    Attributes:
        resting: running requests whose turn it is not, longest rest first.
    """

    def __init__(self, running: SglangBatch, most: int | None) -> None:
        self._running = running
        self._most = most
        self.resting: list[SglangRequest] = []

    def gather(self) -> None:
        """All running requests are in the running batch again, those that rested first."""
        if self.resting:
            self._running.prepend(self.resting)
            self.resting = []

    def rest(self) -> None:
        """Leave in the running batch whose turn it is."""
        if self._most is not None and len(self._running) > self._most:
            self.resting = self._running.requests[self._most :]
            self._running.remove(self.resting)

"""When waiting requests may start (static batching), and which running ones decode (turns)."""

from collections.abc import Sequence
from dataclasses import dataclass

from sim.sglang.request import SglangBatch, SglangRequest

_NO_LIMIT = 2**62


@dataclass(frozen=True, slots=True)
class StaticSettings:
    """Settings of static batching.

    Attributes:
        batch_size: largest number of requests of a batch; a batch starts as soon as this many
            requests wait.
        max_wait_ns: a smaller batch starts once its oldest request has waited for this long.
    """

    batch_size: int
    max_wait_ns: int


class Batching:
    """Says how many waiting requests the next pass may admit: any number, as in SGLang.

    Attributes:
        num_open_places: requests that may be admitted before `may_join` is called again.
    """

    def __init__(self, num_open_places: int = _NO_LIMIT) -> None:
        self.num_open_places = num_open_places

    def may_join(self, waiting: Sequence[SglangRequest], now_ns: int, *, is_idle: bool) -> bool:
        """Whether a pass may admit requests. Under static batching, this call may start a batch.

        Args:
            waiting: at least one request, in any order.
            now_ns: time of the pass.
            is_idle: no request runs and no result is awaited.
        """
        return True

    def note_admitted(self, num_requests: int) -> None:
        """Note that a pass admitted `num_requests` requests."""

    def note_decode(self) -> None:
        """Note that no prefill was launched, so that the batch decodes."""

    def start_ns(self, waiting: Sequence[SglangRequest]) -> int | None:
        """When an idle server's next batch starts if no request arrives; None: it need not wait."""
        return None


class StaticBatching(Batching):
    """All requests of a batch start together, and all end before the next batch starts.

    The prefill of a batch may take several passes. From its first decode step on, no request can
    join. A request that ends early is answered at once, but no other request takes its place.
    """

    def __init__(self, settings: StaticSettings) -> None:
        super().__init__(0)
        self._settings = settings

    def may_join(self, waiting: Sequence[SglangRequest], now_ns: int, *, is_idle: bool) -> bool:
        batch_size = self._settings.batch_size
        may_start = len(waiting) >= batch_size or now_ns >= self.start_ns(waiting)
        if not self.num_open_places and is_idle and may_start:
            self.num_open_places = min(batch_size, len(waiting))
        return self.num_open_places > 0

    def note_admitted(self, num_requests: int) -> None:
        self.num_open_places = max(self.num_open_places - num_requests, 0)

    def note_decode(self) -> None:
        self.num_open_places = 0

    def start_ns(self, waiting: Sequence[SglangRequest]) -> int:
        return min([request.spec.arrival_ns for request in waiting]) + self._settings.max_wait_ns


def build_batching(settings: StaticSettings | None) -> Batching:
    """The batching for these settings; None: continuous batching."""
    return Batching() if settings is None else StaticBatching(settings)


class DecodeTurns:
    """Limits a decode step to `max_rows` rows; the other running requests rest and keep their KV.

    The requests that have rested longest decode next. While a decision is made, the running batch
    has all running requests as rows; between decisions it has only those whose turn it is.

    Attributes:
        resting: running requests whose turn it is not, longest rest first.
    """

    def __init__(self, running: SglangBatch, max_rows: int | None) -> None:
        self._running = running
        self._max_rows = max_rows
        self.resting: list[SglangRequest] = []

    def gather(self) -> None:
        """Put the resting requests back into the running batch, before the other rows."""
        if self.resting:
            self._running.prepend(self.resting)
            self.resting = []

    def rest(self) -> None:
        """Keep only the first rows in the running batch: it is their turn."""
        if self._max_rows is not None and len(self._running) > self._max_rows:
            self.resting = self._running.requests[self._max_rows :]
            self._running.remove(self.resting)

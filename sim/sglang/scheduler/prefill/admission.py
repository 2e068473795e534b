"""Which waiting requests a prefill pass may admit: any number of all of them, as in SGLang.

Otherwise static batching says when they may start, or packing selects some of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mypy_extensions import mypyc_attr

from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.request import SglangRequest


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


class StaticBatching:
    """All requests of a batch start together, and all end before the next batch starts.

    The prefill of a batch may take several passes. From its first decode step on, no request can
    join. A request that ends early is answered at once, but no other request takes its place.

    Attributes:
        num_open_places: requests that may be admitted before `may_join` is called again.
    """

    def __init__(self, settings: StaticSettings) -> None:
        self.num_open_places = 0
        self._settings = settings

    def may_join(self, waiting: Sequence[SglangRequest], now_ns: int, *, is_idle: bool) -> bool:
        """Whether a pass may admit requests; this call may start a batch.

        Args:
            waiting: at least one request, in any order.
            now_ns: time of the pass.
            is_idle: no request runs and no result is awaited.
        """
        batch_size = self._settings.batch_size
        may_start = len(waiting) >= batch_size or now_ns >= self.start_ns(waiting)
        if not self.num_open_places and is_idle and may_start:
            self.num_open_places = min(batch_size, len(waiting))
        return self.num_open_places > 0

    def note_admitted(self, num_requests: int) -> None:
        """A pass has admitted this many requests."""
        self.num_open_places = max(self.num_open_places - num_requests, 0)

    def note_decode(self) -> None:
        """No prefill was launched, so that the batch decodes."""
        self.num_open_places = 0

    def start_ns(self, waiting: Sequence[SglangRequest]) -> int:
        """When an idle server's next batch starts if no request arrives."""
        return min([request.spec.arrival_ns for request in waiting]) + self._settings.max_wait_ns


@dataclass(frozen=True, slots=True)
class PackSettings:
    """Settings of admission `pack`.

    Attributes:
        lookahead: how many requests, from the head of the queue, may be selected.
        force_fifo_every: every pass whose number is a multiple of this considers the whole queue.
        counts_cached: True: a prompt costs all of its tokens; False: only those that are not in the
            prefix cache.
    """

    lookahead: int
    force_fifo_every: int
    counts_cached: bool


class Admission(Protocol):
    """Selects the requests that a pass considers, in the order of the queue."""

    def candidates(
        self, waiting: Sequence[SglangRequest], num_slots: int
    ) -> Sequence[SglangRequest]:
        """Called once a pass.

        Args:
            waiting: requests in the order of the pass.
            num_slots: how many requests the pass can admit.
        """


@mypyc_attr(allow_interpreted_subclasses=True)
class WholeQueue:
    """All requests, as in SGLang: the first one that does not fit ends the pass."""

    def candidates(
        self, waiting: Sequence[SglangRequest], num_slots: int
    ) -> Sequence[SglangRequest]:
        return waiting


@mypyc_attr(allow_interpreted_subclasses=True)
class Pack:
    """The cheapest of the first `lookahead` requests that together fit into the prefill budget.

    Requests are selected by prompt length, shortest first, while the sum is within
    `max_prefill_tokens`. They are then considered in the order of the queue. If even the shortest
    does not fit, only the head of the queue is considered. Every `force_fifo_every`-th pass
    considers the whole queue, so that a long prompt is not skipped for ever. Aged requests
    (sim.sglang.scheduler.waiting.fairness) are never skipped.

    Example: a budget of 1,000 tokens and prompts of 900, 300, 500, 400 tokens. 300 and 400 are
    selected; 500 more would exceed the budget.
    """

    def __init__(self, settings: PackSettings, kv: KVCacheManager, budget_tokens: int) -> None:
        self._settings = settings
        self._kv = kv
        self._budget_tokens = budget_tokens
        self._num_passes = 0

    def candidates(
        self, waiting: Sequence[SglangRequest], num_slots: int
    ) -> Sequence[SglangRequest]:
        self._num_passes += 1
        if self._num_passes % self._settings.force_fifo_every == 0:
            return waiting
        seen = waiting[: self._settings.lookahead]
        others = [request for request in seen if not request.is_aged]
        chosen = self._cheapest(others, num_slots)
        if not chosen:
            chosen = {id(request) for request in seen[:1]}
        return [r for r in seen if r.is_aged or id(r) in chosen]

    def _cheapest(self, requests: Sequence[SglangRequest], num_slots: int) -> set[int]:
        chosen: set[int] = set()
        left = self._budget_tokens
        for cost, request in sorted(
            ((self._cost(request), request) for request in requests), key=lambda pair: pair[0]
        ):
            left -= cost
            if left < 0 or len(chosen) >= num_slots:
                break
            chosen.add(id(request))
        return chosen

    def _cost(self, request: SglangRequest) -> int:
        """Tokens of the prefill, rounded up to whole pages: the budget is spent in pages."""
        num_tokens = request.num_tokens
        if not self._settings.counts_cached and self._kv.cache.enabled:
            token_ids = request.kv.token_ids(num_tokens)
            match = self._kv.cache.match(token_ids, num_tokens - 1, request.kv.found)
            num_tokens -= match.num_tokens + match.num_host_tokens
        return self._kv.ceil_page(num_tokens)


def build_admission(
    settings: PackSettings | None,
    kv: KVCacheManager,
    budget_tokens: int,
    own: Admission | None = None,
) -> Admission:
    """The user's own admission, or the one for these settings; None: as in SGLang."""
    if own is not None:
        return own
    return WholeQueue() if settings is None else Pack(settings, kv, budget_tokens)

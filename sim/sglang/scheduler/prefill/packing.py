"""Which waiting requests a prefill pass considers: all of them, or a selection (packing)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mypy_extensions import mypyc_attr

from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.request import SglangRequest


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

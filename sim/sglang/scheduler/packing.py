"""Which waiting requests a prefill pass considers: all of them, or those that pack its budget."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.request import SglangRequest


@dataclass(frozen=True, slots=True)
class PackSettings:
    """Settings of admission `pack`.

    Attributes:
        lookahead: requests of the queue that are looked at.
        force_fifo_every: every so many passes one considers the queue as it is.
        counts_cached: a prompt costs all its tokens; False: only those not in the prefix cache.
    """

    lookahead: int
    force_fifo_every: int
    counts_cached: bool


class Admission(Protocol):
    """Chooses from the ordered queue what a pass is offered, in the order of the queue."""

    def candidates(
        self, waiting: Sequence[SglangRequest], num_slots: int
    ) -> Sequence[SglangRequest]:
        """Called once a pass.

        Args:
            waiting: requests in the order of the pass.
            num_slots: most of them that the pass can admit.
        """
        ...


class WholeQueue:
    """Everybody, as in SGLang: the first that does not fit ends the pass."""

    def candidates(
        self, waiting: Sequence[SglangRequest], num_slots: int
    ) -> Sequence[SglangRequest]:
        return waiting


class Pack:
    """The cheapest of the first requests, as many as fit the pass's prefill tokens.

    Cheapest first by prompt, taken while the sum is within `max_prefill_tokens`, then run in the
    order of the queue. If not even the cheapest fits, the head alone. Every `force_fifo_every`
    passes the queue is considered as it is, so that a long prompt cannot be skipped for ever. Aged
    requests (sim.sglang.scheduler.fairness) are never skipped.
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
        """Tokens of the prefill, in whole pages as the budget is spent."""
        num_tokens = request.num_tokens
        if not self._settings.counts_cached and self._kv.cache.enabled:
            token_ids = request.kv.token_ids(num_tokens)
            match = self._kv.cache.match(token_ids, num_tokens - 1, request.kv.found)
            num_tokens -= match.num_tokens + match.num_host_tokens
        return self._kv.ceil_page(num_tokens)


def build_admission(
    settings: PackSettings | None, kv: KVCacheManager, budget_tokens: int
) -> Admission:
    """The admission that these settings ask for; None: SGLang's."""
    return WholeQueue() if settings is None else Pack(settings, kv, budget_tokens)

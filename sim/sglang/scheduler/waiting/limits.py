"""Limits on waiting requests, and on the time that requests wait or run (rule 21).

Source: SGLang 0.5.23, `_abort_on_queued_limit` and `_poll_timeout_aborts` in managers/scheduler.py.
"""

from collections.abc import Iterable

from sim.engine.scheduler import NEVER_AGES_NS
from sim.sglang.config import SchedulerConfig
from sim.sglang.request import SglangRequest
from sim.sglang.scheduler.waiting.queue import WaitingQueue


class Limits:
    """Says which requests are dropped because too many wait, and which are late."""

    def __init__(self, config: SchedulerConfig, waiting: WaitingQueue) -> None:
        self._waiting = waiting
        self._most_waiting = config.max_queued_requests
        self._waiting_ns = config.waiting_timeout_ns
        self._running_ns = config.running_timeout_ns
        self._has_priorities = config.enable_priority_scheduling
        self._sign = config.priority_sign

    def one_too_many(self, entering: SglangRequest) -> SglangRequest | None:
        """The request to drop when one enters the queue; None: there is a place for it.

        With priorities it is the least important one that waits, if the entering one is better.
        """
        waiting, sign = self._waiting.requests, self._sign
        if self._most_waiting is None or len(waiting) < self._most_waiting:
            return None
        if self._has_priorities and waiting:
            least = max(waiting, key=lambda r: (sign * r.priority, r.entry))
            if sign * entering.priority < sign * least.priority:
                return least
        return entering

    def late(self, now_ns: int, running: Iterable[SglangRequest]) -> list[SglangRequest]:
        """The waiting and the running requests that are late now, in order."""
        late: list[SglangRequest] = []
        if (limit_ns := self._waiting_ns) is not None:
            late += [r for r in self._waiting.requests if now_ns - r.entered_ns > limit_ns]
        if (limit_ns := self._running_ns) is not None:
            late += [r for r in running if now_ns - r.scheduled_ns > limit_ns]
        return late

    def next_late_ns(self, running: Iterable[SglangRequest]) -> int:
        """The first time at which a request is late."""
        times_ns = [NEVER_AGES_NS]
        if (limit_ns := self._waiting_ns) is not None:
            times_ns += [r.entered_ns + limit_ns + 1 for r in self._waiting.requests]
        if (limit_ns := self._running_ns) is not None:
            times_ns += [r.scheduled_ns + limit_ns + 1 for r in running]
        return min(times_ns)


def build_limits(config: SchedulerConfig, waiting: WaitingQueue) -> Limits | None:
    """The limits of these settings; None: there are none."""
    limits = (config.max_queued_requests, config.waiting_timeout_ns, config.running_timeout_ns)
    return None if all(limit is None for limit in limits) else Limits(config, waiting)

"""Putting running requests back when the next decode step does not fit (rule 11)."""

from collections.abc import Callable
from typing import NamedTuple

from sim.engine.request import Request
from sim.engine.running_batch import RunningBatch
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.config import SchedulerConfig

Release = Callable[[Request, int], None]


class Retraction(NamedTuple):
    """Requests taken out of the running batch, in order; `aborted` can never fit."""

    retracted: list[Request]
    aborted: list[Request]


def retract(
    config: SchedulerConfig, kv: KVCacheManager, running: RunningBatch, release: Release
) -> Retraction:
    """Retract until the next decode step fits: at least one, never the last, which is aborted.

    `release` frees a request's KV, given how many remain. The rows that stay come out in order of
    preference, as in SGLang.
    """
    preferred = sorted(running.requests, key=_preference(config, running), reverse=True)
    leaving: list[Request] = []
    while len(preferred) > 1 and (not leaving or not _fits(preferred, kv, running)):
        leaving.append(_let_go(preferred, running, release))
    retracted = list(leaving)
    aborted: list[Request] = []
    if len(preferred) == 1 and not _fits(preferred, kv, running):
        aborted.append(_let_go(preferred, running, release))
    running.reorder(preferred)
    return Retraction(retracted, aborted)


def _preference(
    config: SchedulerConfig, running: RunningBatch
) -> Callable[[Request], tuple[int, int, int]]:
    """Sort key, larger is kept longer: priority if asked for, tokens generated, short prompt."""
    sign = 1 if config.schedule_low_priority_values_first else -1
    by_priority = config.retraction_policy == "priority"

    def key(request: Request) -> tuple[int, int, int]:
        priority = -sign * request.priority if by_priority else 0
        return priority, running.num_generated(request), -request.prompt_len

    return key


def _fits(rows: list[Request], kv: KVCacheManager, running: RunningBatch) -> bool:
    num_new_pages = sum(running.seq_len(request) % kv.page_size == 0 for request in rows)
    return kv.can_decode(num_new_pages)


def _let_go(rows: list[Request], running: RunningBatch, release: Release) -> Request:
    request = rows.pop()
    running.remove([request])
    release(request, len(rows))
    return request

"""Putting running requests back when the next decode step does not fit (rule 11)."""

from collections.abc import Callable
from typing import NamedTuple

from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.config import SchedulerConfig
from sim.sglang.request import SglangBatch, SglangRequest

Release = Callable[[SglangRequest, int], None]


class Retraction(NamedTuple):
    """Requests taken out of the running batch, in order; `aborted` can never fit."""

    retracted: list[SglangRequest]
    aborted: list[SglangRequest]


def retract(
    config: SchedulerConfig, kv: KVCacheManager, running: SglangBatch, release: Release
) -> Retraction:
    """Retract until the next decode step fits: at least one, never the last, which is aborted.

    `release` frees a request's KV, given how many remain. The rows that stay come out in order of
    preference, as in SGLang.
    """
    preferred = sorted(running.requests, key=_preference(config), reverse=True)
    leaving: list[SglangRequest] = []
    while len(preferred) > 1 and (not leaving or not _fits(preferred, kv)):
        leaving.append(_let_go(preferred, running, release))
    retracted = list(leaving)
    aborted: list[SglangRequest] = []
    if len(preferred) == 1 and not _fits(preferred, kv):
        aborted.append(_let_go(preferred, running, release))
    running.reorder(preferred)
    return Retraction(retracted, aborted)


def _preference(config: SchedulerConfig) -> Callable[[SglangRequest], tuple[int, int, int]]:
    """Sort key, larger is kept longer: priority if asked for, tokens generated, short prompt."""
    sign = 1 if config.schedule_low_priority_values_first else -1
    by_priority = config.retraction_policy == "priority"

    def key(request: SglangRequest) -> tuple[int, int, int]:
        priority = -sign * request.priority if by_priority else 0
        return priority, request.num_generated, -request.prompt_len

    return key


def _fits(rows: list[SglangRequest], kv: KVCacheManager) -> bool:
    num_new_pages = sum(request.seq_len % kv.page_size == 0 for request in rows)
    return kv.can_decode(num_new_pages)


def _let_go(rows: list[SglangRequest], running: SglangBatch, release: Release) -> SglangRequest:
    request = rows.pop()
    running.remove([request])
    release(request, len(rows))
    return request

"""Retraction: running requests are put back if the next decode step does not fit (rule 11)."""

from collections.abc import Callable
from typing import NamedTuple

from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.config import SchedulerConfig
from sim.sglang.request import SglangBatch, SglangRequest

Release = Callable[[SglangRequest, int], None]


class Retraction(NamedTuple):
    """Requests removed from the running batch, in order; the `aborted` one can never fit."""

    retracted: list[SglangRequest]
    aborted: list[SglangRequest]


def retract(
    config: SchedulerConfig, kv: KVCacheManager, running: SglangBatch, release: Release
) -> Retraction:
    """Retract requests until the next decode step fits (in older versions, several steps).

    At least one request is retracted. The last one is not retracted: if it does not fit alone, it
    is aborted. As in SGLang, the rows that stay are then ordered by preference.

    `release` frees a request's KV; its second argument is the number of rows that remain.
    """
    preferred = sorted(running.requests, key=_preference(config), reverse=True)
    leaving: list[SglangRequest] = []
    while len(preferred) > 1 and (not leaving or _must_shrink(config, preferred, kv)):
        leaving.append(_pop_row(preferred, running, release))
    retracted = list(leaving)
    aborted: list[SglangRequest] = []
    if len(preferred) == 1 and not _fits(preferred, kv):
        aborted.append(_pop_row(preferred, running, release))
    running.reorder(preferred)
    return Retraction(retracted, aborted)


def _preference(config: SchedulerConfig) -> Callable[[SglangRequest], tuple[int, int, int]]:
    """Sort key; the smallest is retracted first.

    Compared in this order: priority (with `retraction_policy: priority`), tokens generated, and
    shortness of the prompt.
    """
    sign = 1 if config.schedule_low_priority_values_first else -1
    by_priority = config.retraction_policy == "priority"

    def key(request: SglangRequest) -> tuple[int, int, int]:
        priority = -sign * request.priority if by_priority else 0
        return priority, request.num_generated, -request.prompt_len

    return key


def _must_shrink(config: SchedulerConfig, rows: list[SglangRequest], kv: KVCacheManager) -> bool:
    if config.rules.retracts_for_steps:
        return kv.free_tokens < len(rows) * config.retract_decode_steps
    return not _fits(rows, kv)


def _fits(rows: list[SglangRequest], kv: KVCacheManager) -> bool:
    num_new_pages = sum(request.seq_len % kv.page_size == 0 for request in rows)
    return kv.can_decode(num_new_pages)


def _pop_row(rows: list[SglangRequest], running: SglangBatch, release: Release) -> SglangRequest:
    request = rows.pop()
    running.remove([request])
    release(request, len(rows))
    return request

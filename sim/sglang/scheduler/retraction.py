"""Retraction: running requests are put back if the next decode step does not fit (rule 11)."""

from collections.abc import Callable

from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.config import SchedulerConfig
from sim.sglang.request import SglangBatch, SglangRequest

# Frees the KV of a request that was removed from the running batch; the second argument is the
# number of rows that remain.
Release = Callable[[SglangRequest, int], None]
# The output tokens of a row that are known.
Count = Callable[[SglangRequest], int]
# Whether the KV of a request that is to be removed is kept, so that it can come back.
Keep = Callable[[SglangRequest], bool]
# The new pages that rows need for their next decode step.
PageNeed = Callable[[list[SglangRequest]], int]


def num_generated(request: SglangRequest) -> int:
    return request.num_generated


def _computed_again(_request: SglangRequest) -> bool:
    """The request can always come back: its KV is computed again."""
    return True


def retract(
    config: SchedulerConfig,
    kv: KVCacheManager,
    running: SglangBatch,
    release: Release,
    need: PageNeed,
    count: Count = num_generated,
    keep: Keep = _computed_again,
) -> tuple[list[SglangRequest], list[SglangRequest]]:
    """Remove requests from the running batch until the next decode step fits (0.5.1: several).

    At least one request is retracted; one whose KV cannot be kept is aborted instead. The last one
    is not retracted: if it does not fit alone, it is aborted. As in SGLang, the rows that stay are
    then ordered by preference.

    Returns:
        The retracted requests and the aborted ones, each in the order of removal.
    """
    preferred = sorted(running.requests, key=_preference(config, count), reverse=True)
    retracted: list[SglangRequest] = []
    aborted: list[SglangRequest] = []
    is_first = True
    while len(preferred) > 1 and (is_first or _must_shrink(config, preferred, kv, need)):
        is_first = False
        removed = retracted if keep(preferred[-1]) else aborted
        removed.append(_pop_row(preferred, running, release))
    if len(preferred) == 1 and not kv.can_decode(need(preferred)):
        aborted.append(_pop_row(preferred, running, release))
    running.reorder(preferred)
    return retracted, aborted


def _preference(
    config: SchedulerConfig, count: Count
) -> Callable[[SglangRequest], tuple[int, int, int]]:
    """Sort key; the smallest is retracted first.

    Compared in this order: priority (with `retraction_policy: priority`), tokens generated, and
    shortness of the prompt.
    """
    sign = config.priority_sign
    by_priority = config.retraction_policy == "priority"

    def key(request: SglangRequest) -> tuple[int, int, int]:
        priority = -sign * request.priority if by_priority else 0
        return priority, count(request), -request.prompt_len

    return key


def _must_shrink(
    config: SchedulerConfig, rows: list[SglangRequest], kv: KVCacheManager, need: PageNeed
) -> bool:
    if config.rules.retracts_for_steps:
        return kv.free_tokens < len(rows) * config.retract_decode_steps
    return not kv.can_decode(need(rows))


def _pop_row(rows: list[SglangRequest], running: SglangBatch, release: Release) -> SglangRequest:
    request = rows.pop()
    running.remove([request])
    release(request, len(rows))
    return request

"""Many decode steps at the price of one.

While nobody can join or leave the running batch and no page has to be evicted, a decode step
decides nothing. What it would do to counters is done for all such steps at once; logs come out the
same to the byte (docs/invariants.md, INV-12).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.core.batch import ForwardMode
from sim.kvcache.manager import KVCacheManager
from sim.scheduler.launch import Launch
from sim.scheduler.scheduler import Scheduler

# Bounds the arrays of one run; longer runs are taken in pieces.
_LONGEST_RUN = 4096


class DecodeRun(NamedTuple):
    """What the log says of each step taken: state right after the step began; shape [num_steps]."""

    free_tokens: NDArray[np.int64]
    ratio: list[float]


def decode_horizon(launch: Launch, scheduler: Scheduler, kv: KVCacheManager) -> int:
    """Further steps that must have the composition of `launch`, the only one in flight."""
    running, waiting = scheduler.running, scheduler.waiting
    if (
        launch.mode is not ForwardMode.DECODE
        or launch.decode is not running.requests
        or scheduler.has_finished_rows
        or scheduler.chunked is not None
        or scheduler.turns.resting
    ):
        return 0
    # A pass over the queue may admit, and even if not it orders the queue and marks prefixes.
    passes = scheduler.batching.num_open and (scheduler.preempts or not running.is_full)
    if len(waiting) and passes:
        return 0
    num_steps = min(running.num_steps_to_limit - 1, _LONGEST_RUN)
    if num_steps <= 0:
        return 0
    new_pages = running.new_pages_ahead(num_steps)
    free_after = kv.pool.num_free_pages - np.cumsum(new_pages)
    if kv.cache.evictable_tokens:
        # With something to evict, a step evicts unless there is a page for every row.
        affordable = free_after + new_pages >= len(running)
    else:
        affordable = free_after >= 0
    return num_steps if affordable.all() else int(affordable.argmin())


def take_decode_steps(num_steps: int, scheduler: Scheduler, kv: KVCacheManager) -> DecodeRun:
    """Begin and finish so many steps of the running batch, within its horizon."""
    running = scheduler.running
    new_pages = running.new_pages_ahead(num_steps)
    free_pages = kv.pool.num_free_pages - np.cumsum(new_pages)
    kv.pool.promise(int(new_pages.sum()))
    running.begin_steps(num_steps)
    running.finish_steps(num_steps)
    scheduler.waiting.processed_tokens += num_steps * running.founding_tokens
    return DecodeRun(free_pages * kv.page_size, scheduler.ratio.decay_steps(num_steps))

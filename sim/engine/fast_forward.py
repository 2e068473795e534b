"""Fast-forward: many decode steps at the cost of one.

As long as no request can join or leave the running batch and no page must be evicted, every
decision is to decode the same rows again. All such steps then update the counters together. The
logs are the same to the byte as those of single steps (docs/explanation/invariants.md, INV-12).
"""

import numpy as np
from numpy.typing import NDArray

from sim.core.batch import ForwardMode
from sim.engine.launch import Launch
from sim.engine.request import Request
from sim.engine.running_batch import PageDemand
from sim.engine.scheduler import BaseScheduler

# Limits the size of a run's arrays; a longer run is split.
MANY_STEPS = 4096


class DecodeRun:
    """Several decode steps of the same rows: their effect on the pool and the new-token ratio.

    Attributes:
        num_steps: number of steps.
        num_pages: pages that the steps allocated.
        last_free_tokens: free tokens after the last step began.
        free_token_steps: free tokens after each step began, summed over the steps.
        ratio: the new-token ratio at each step.
    """

    def __init__(
        self,
        num_steps: int,
        free_pages: int,
        page_size: int,
        demand: PageDemand,
        ratio: list[float],
    ) -> None:
        self.num_steps = num_steps
        self.ratio = ratio
        self._free_pages = free_pages
        self._page_size = page_size
        self._demand = demand
        self.num_pages, page_steps = demand.after(num_steps)
        self.last_free_tokens = (free_pages - self.num_pages) * page_size
        self.free_token_steps = (free_pages * num_steps - page_steps) * page_size

    def free_tokens(self) -> NDArray[np.int64]:
        """Free tokens after each step began; int64, shape [num_steps]."""
        return (self._free_pages - self._demand.after_each(self.num_steps)) * self._page_size


def decode_horizon(launch: Launch[Request], scheduler: BaseScheduler[Request]) -> int:
    """How many steps after `launch`, the only one in flight, must have the same rows."""
    running = scheduler.running
    if (
        launch.mode is not ForwardMode.DECODE
        or launch.decode is not running.requests
        or scheduler.has_finished_rows
        or not scheduler.repeats
    ):
        return 0
    num_steps = min(running.num_steps_to_limit - 1, MANY_STEPS)
    if num_steps <= 0:
        return 0
    return scheduler.memory.num_affordable_steps(num_steps, running.page_demand())


def take_decode_steps(num_steps: int, scheduler: BaseScheduler[Request]) -> DecodeRun:
    """Begin and finish `num_steps` steps of the running batch, at most `decode_horizon`."""
    running, kv = scheduler.running, scheduler.memory
    run = DecodeRun(
        num_steps,
        kv.num_free_pages,
        kv.page_size,
        running.page_demand(),
        scheduler.decode_again(num_steps),
    )
    kv.promise_pages(run.num_pages)
    running.begin_steps(num_steps)
    running.finish_steps(num_steps)
    scheduler.decoded_again(num_steps)
    return run

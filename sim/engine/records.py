"""What an engine says of its steps and requests, as plain facts."""

from collections.abc import Sequence
from typing import NamedTuple

from sim.core.batch import Batch
from sim.core.request import RequestSpec, Status

# The rid of a request that needed room, and the rids of those put back for it, in order.
Preempted = tuple[str, tuple[str, ...]]


class StepState(NamedTuple):
    """State of a server right after a step was decided and its KV allocated; token counts.

    Attributes:
        free_tokens, evictable_tokens, used_tokens: their sum is the pool.
        queue: waiting requests.
        running: running requests, as the family's own log counts them.
        slots: request slots taken.
        full: no request is admitted for now.
        ratio: the share of running requests' remaining output that admission reserves.
        chunked: the request with more chunks to come, or None.
        retracted, aborted: requests this decision put back or gave up.
        preempted: `(by, victims)` pairs, also of decisions since the last launch that launched
            nothing.
        host_used_tokens: in host memory; None: there is no host tier.
    """

    free_tokens: int
    evictable_tokens: int
    used_tokens: int
    queue: int
    running: int
    slots: int
    full: bool
    ratio: float
    chunked: str | None
    retracted: tuple[str, ...]
    aborted: tuple[str, ...]
    preempted: tuple[Preempted, ...]
    host_used_tokens: int | None


class RequestRecord(NamedTuple):
    """A request that is over. Times in ns, -1 where the event never happened.

    Attributes:
        scheduled_ns: when the first batch it was in was decided.
        cached_tokens: prompt tokens found in the cache then.
        host_cached_tokens: those of them that were loaded back from host memory.
        aged: it has, at some time, waited so long that it went first.
    """

    spec: RequestSpec
    status: Status
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    host_cached_tokens: int
    scheduled_ns: int
    first_token_ns: int
    finish_ns: int
    retractions: int
    preemptions: int
    aged: bool


class Decided(NamedTuple):
    """What `EngineCore.begin_step` answers.

    Attributes:
        batch: what to run; None: nothing can run before something changes.
        state: the server's state right after the decision; None without a batch.
        over: requests that this decision gave up because they can never fit.
        wakes_ns: without a batch and without a result to wait for: the time from which the next
            decision may launch something; None: an arrival, or at once if requests wait.
        preempted: `(by, victims)` pairs of this decision. If there are any and no batch, the next
            decision, at once, may launch something.
    """

    batch: Batch | None
    state: StepState | None
    over: Sequence[RequestRecord] = ()
    wakes_ns: int | None = None
    preempted: Sequence[Preempted] = ()

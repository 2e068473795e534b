"""What an engine says of its steps and requests, as plain facts."""

from typing import NamedTuple

from sim.core.request import RequestSpec, Status

# A request in need of room and those put back for it, in order; rids.
Preempted = tuple[str, tuple[str, ...]]


class StepState(NamedTuple):
    """State of a server right after a step was decided and its KV allocated; token counts.

    Attributes:
        free_tokens, evictable_tokens, used_tokens: their sum is the pool.
        queue: waiting requests.
        running: rows of the running batch; 0 in a mixed step, as in SGLang.
        slots: request slots taken.
        full: the batch_is_full flag.
        ratio: the new-token ratio.
        chunked: the request with more chunks to come, or None.
        retracted, aborted: requests this decision put back or gave up.
        preempted: `(by, victims)` pairs, of decisions since the last launch too that launched
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
        cached_tokens: prompt tokens found in the cache then (rule 15).
        host_cached_tokens: those of them that were loaded back from host memory.
        aged: it had waited so long at some time that it went first.
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

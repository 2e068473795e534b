"""What a decision comes to: a launched batch with its requests, and who was put back."""

from dataclasses import dataclass, field

from sim.core.batch import ForwardMode
from sim.scheduler.request import Request


@dataclass(slots=True, eq=False)
class Launch:
    """One batch that was launched, with its requests.

    Attributes:
        mode: extend, decode or mixed.
        prefill: prefill rows in batch order.
        decode: decode rows in batch order.
        chunked: the prefill row whose prompt has more chunks to come, if any.
        num_new_tokens: tokens computed by a batch with prefill rows, decode rows' included.
        leaving: decode rows that reach their limit with this launch's result and were left out of
            the next one, decided before it (rule 18).
    """

    mode: ForwardMode
    prefill: list[Request]
    decode: list[Request]
    chunked: Request | None = None
    num_new_tokens: int = 0
    leaving: list[Request] = field(default_factory=list)


@dataclass(slots=True)
class Decisions:
    """What one call decided besides the batch, for the log. Names in order."""

    retracted: list[Request] = field(default_factory=list)
    preempted: list[tuple[Request, list[Request]]] = field(default_factory=list)
    aborted: list[Request] = field(default_factory=list)

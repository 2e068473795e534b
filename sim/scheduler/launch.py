"""What a decision comes to: a launched batch with its requests, and who was put back."""

from sim.core.batch import ForwardMode
from sim.scheduler.request import Request


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

    __slots__ = ("chunked", "decode", "leaving", "mode", "num_new_tokens", "prefill")

    def __init__(
        self,
        mode: ForwardMode,
        prefill: list[Request],
        decode: list[Request],
        chunked: Request | None = None,
    ) -> None:
        self.mode = mode
        self.prefill = prefill
        self.decode = decode
        self.chunked = chunked
        self.num_new_tokens = 0
        self.leaving: list[Request] = []


class Decisions:
    """What one call decided besides the batch, for the log.

    Attributes:
        retracted, aborted: requests put back or given up, in order.
        preempted: pairs of a request and those it preempted, in order.
    """

    __slots__ = ("aborted", "preempted", "retracted")

    def __init__(self) -> None:
        self.retracted: list[Request] = []
        self.preempted: list[tuple[Request, list[Request]]] = []
        self.aborted: list[Request] = []

"""What a decision comes to: a launched batch with its requests, and who was put back."""

from collections.abc import Sequence

from sim.core.batch import ForwardMode
from sim.core.request import Status
from sim.engine.request import Request
from sim.engine.running_batch import RunningBatch


class Launch:
    """One batch that was launched, with its requests.

    Attributes:
        mode: extend, decode or mixed.
        prefill: prefill rows in batch order.
        decode: decode rows in batch order.
        chunked: the prefill rows whose prompts have more chunks to come.
        num_new_tokens: tokens computed by a batch with prefill rows, decode rows' included.
        leaving: decode rows that reach their limit with this launch's result and were left out of
            the next one, decided before it (SGLang's rule 18, vLLM's rule 12).
        resting, resumed: rows that sit this launch out, and that come back with it.
        put_back: rows preempted before this launch's result was known, whose tokens count all the
            same; vLLM's only.
    """

    __slots__ = (
        "chunked",
        "decode",
        "leaving",
        "mode",
        "num_new_tokens",
        "prefill",
        "put_back",
        "resting",
        "resumed",
    )

    def __init__(
        self,
        mode: ForwardMode,
        prefill: list[Request],
        decode: list[Request],
        chunked: tuple[Request, ...] = (),
    ) -> None:
        self.mode = mode
        self.prefill = prefill
        self.decode = decode
        self.chunked = chunked
        self.num_new_tokens = 0
        self.leaving: Sequence[Request] = ()
        self.resting: Sequence[Request] = ()
        self.resumed: Sequence[Request] = ()
        self.put_back: list[Request] = []


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


def _rows_finishing_in(in_flight: Launch, running: RunningBatch) -> list[Request]:
    """Rows that reach their limit with the token that is in flight."""
    if in_flight.mode is not ForwardMode.EXTEND:
        return running.rows_at_limit(1)
    return [
        request
        for request in in_flight.prefill
        if request not in in_flight.chunked
        and request.status is Status.RUNNING
        and running.num_generated(request) + 1 >= request.max_new_tokens
    ]


def leave_out_finishing(in_flight: Launch | None, running: RunningBatch) -> Sequence[Request]:
    """Take rows out whose last token is in flight, known by their limit (rule 18; vLLM's 12)."""
    if in_flight is None:
        return ()
    finishing = _rows_finishing_in(in_flight, running)
    running.remove(finishing)
    in_flight.leaving = finishing
    return finishing

"""What a scheduler decides: a batch to launch with its requests, and which were put back."""

from collections.abc import Sequence
from typing import Generic

from sim.core.batch import ForwardMode
from sim.core.request import Status
from sim.engine.running_batch import R, RunningBatch


class Launch(Generic[R]):
    """One batch that is launched, with its requests.

    Attributes:
        mode: extend, decode or mixed.
        prefill: prefill rows in batch order.
        decode: decode rows in batch order.
        chunked: the prefill rows whose prompts have more chunks to come.
        num_new_tokens: tokens computed by a batch with prefill rows, decode rows' included.
        leaving: decode rows that reach their limit with this launch's result. The next launch was
            decided before that result was known, and left them out.
        resting, resumed: running rows that this launch leaves out, and those that come back with
            it.
        put_back: rows that were preempted before this launch's result was known, and whose tokens
            count all the same.
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
        prefill: list[R],
        decode: list[R],
        chunked: tuple[R, ...] = (),
    ) -> None:
        self.mode = mode
        self.prefill = prefill
        self.decode = decode
        self.chunked = chunked
        self.num_new_tokens = 0
        self.leaving: Sequence[R] = ()
        self.resting: Sequence[R] = ()
        self.resumed: Sequence[R] = ()
        self.put_back: list[R] = []


class Decision(Generic[R]):
    """What one call of a scheduler decided.

    Attributes:
        launch: the batch to launch; None: nothing can run before something changes.
        retracted, aborted: running requests that were put back or given up, in order.
        preempted: each request that needed room, with those put back for it, in order.
    """

    __slots__ = ("aborted", "launch", "preempted", "retracted")

    def __init__(self) -> None:
        self.launch: Launch[R] | None = None
        self.retracted: list[R] = []
        self.preempted: list[tuple[R, list[R]]] = []
        self.aborted: list[R] = []

    @property
    def takes_out(self) -> bool:
        """Some request that ran was taken out, so that the next decision may differ."""
        return bool(self.retracted or self.preempted or self.aborted)


def leave_out_finishing(in_flight: Launch[R] | None, running: RunningBatch[R]) -> Sequence[R]:
    """Take rows out that reach their limit with the token in flight; returns them.

    Their end is known before their last token is: the next launch need not have them.
    """
    if in_flight is None:
        return ()
    finishing = _rows_finishing_in(in_flight, running)
    running.remove(finishing)
    in_flight.leaving = finishing
    return finishing


def _rows_finishing_in(in_flight: Launch[R], running: RunningBatch[R]) -> list[R]:
    if in_flight.mode is not ForwardMode.EXTEND:
        return running.rows_at_limit(1)
    return [
        request
        for request in in_flight.prefill
        if request not in in_flight.chunked
        and request.status is Status.RUNNING
        and request.num_generated + 1 >= request.max_new_tokens
    ]

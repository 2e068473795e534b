"""Rows whose last token is in flight: they certainly end, so the next launch does without them."""

from collections.abc import Callable, Sequence

from sim.core.batch import ForwardMode
from sim.core.request import Status
from sim.engine.running_batch import R, RunningBatch
from sim.engine.scheduler import Launch


def leave_out_finishing(
    in_flight: Launch[R] | None,
    running: RunningBatch[R],
    only: Callable[[R], bool] | None = None,
) -> Sequence[R]:
    """Remove and return the running rows whose limit is reached with the token in flight.

    It is already certain that these rows end, so the next launch does without them. With `only`,
    rows for which it is false stay.
    """
    if in_flight is None:
        return ()
    finishing = _rows_finishing_in(in_flight, running)
    if only is not None:
        finishing = [row for row in finishing if only(row)]
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

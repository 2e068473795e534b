"""What a decision launches: its requests, and the batch that executors and latency models see."""

from collections.abc import Callable, Sequence
from typing import Generic

from sim.core.batch import Batch, ForwardMode, PrefillRow
from sim.core.request import Status
from sim.engine.request import Request
from sim.engine.running_batch import R, RunningBatch


class Launch(Generic[R]):
    """One batch that is launched, with its requests.

    Attributes:
        mode: extend, decode or mixed.
        prefill: prefill rows in batch order.
        decode: decode rows in batch order.
        chunked: the prefill rows whose prompts have more chunks to come.
        num_new_tokens: tokens that a batch with prefill rows computes, those of its decode rows
            included; 0 for other batches.
        leaving: decode rows that reach their token limit with this launch's result. The next
            launch, decided before that result is known, does without them.
        resting, resumed: running rows that skip this launch; rows that take part again after a
            rest.
        put_back: rows that were preempted before this launch's result was known, and that keep
            the token of this launch.
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


# A request, and how many tokens of its prefix were loaded from host memory.
Restored = tuple[str, int]


class Decision(Generic[R]):
    """What one call of `BaseScheduler.decide` decided.

    Attributes:
        launch: the batch to launch; None if nothing can run now.
        retracted: running requests that were put back into the queue because KV ran out, in order.
        aborted: running requests that were given up because they can never fit, in order.
        preempted: each request that needed KV, with the requests put back for it, in order.
        waited_ns: how long the scheduler waited for copies to host memory while it decided.
        restored: with a launch, what was loaded from host memory since the launch before for
            requests that do not run yet: rids, and tokens.
    """

    __slots__ = ("aborted", "launch", "preempted", "restored", "retracted", "waited_ns")

    def __init__(self) -> None:
        self.launch: Launch[R] | None = None
        self.retracted: list[R] = []
        self.preempted: list[tuple[R, list[R]]] = []
        self.aborted: list[R] = []
        self.waited_ns = 0
        self.restored: tuple[Restored, ...] = ()

    @property
    def takes_out(self) -> bool:
        """Whether a running request was taken out, so that the next decision may differ."""
        return bool(self.retracted or self.preempted or self.aborted)


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


def batch_of(
    launch: Launch[Request],
    running: RunningBatch[Request],
    resting: Sequence[Request],
    stopped_rids: Sequence[str],
) -> Batch:
    """The batch of a launch that was just decided, as executors and latency models see it.

    Args:
        launch: what was launched.
        running: the scheduler's running batch.
        resting: the running requests that this launch leaves out.
        stopped_rids: the requests taken out of the running batch since the last launch.
    """
    num_prefill_context = 0
    for request in launch.prefill:
        num_prefill_context += request.extend_end
    decodes = launch.mode is not ForwardMode.EXTEND
    num_decode_context = running.num_tokens if decodes else 0
    return Batch(
        launch.mode,
        prefill_rows(launch),
        running.rids if decodes else (),
        num_prefill_context + num_decode_context,
        num_decode_context,
        tuple(stopped_rids),
        tuple([request.rid for request in resting]) if resting else (),
        running.max_seq_len if decodes else 0,
        running.min_seq_len if decodes else 0,
    )


def prefill_rows(launch: Launch[Request]) -> tuple[PrefillRow, ...]:
    """The prefill rows of a launch, in batch order."""
    rows = [
        PrefillRow(
            request.rid,
            request.prefix_len,
            request.extend_len,
            request.num_generated,
            request not in launch.chunked,
            request.loaded_len,
            request.load_tokens,
        )
        for request in launch.prefill
    ]
    return tuple(rows)

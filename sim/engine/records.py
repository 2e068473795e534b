"""What a decision launches, and what an engine reports about its steps and requests.

A `Launch` and a `Decision` are the scheduler's, with its requests. All others are values for
executors, latency models and logs.
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic

from sim.core.batch import Batch, ForwardMode, PrefillRow
from sim.core.request import Status
from sim.engine.request import NEVER_NS, Request
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

    `resting` are the running requests that it leaves out, `stopped_rids` those taken out of the
    running batch since the last launch.
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


# The rid of a request that needed KV, and the rids of the requests put back for it, in order.
Preempted = tuple[str, tuple[str, ...]]


class StepState:
    """State of a server right after it decided a step and allocated the step's KV.

    Attributes:
        free_tokens, evictable_tokens, used_tokens: tokens of the pool; their sum is its size.
        queue: waiting requests.
        running: running requests, counted as a real server of the family counts them in its log.
        slots: request slots in use.
        full: whether admission is closed for now.
        ratio: share of the running requests' remaining output that admission reserves KV for.
        chunked: the request whose prompt has more chunks to come, or None.
        retracted, aborted: requests that this decision put back into the queue, or gave up.
        preempted: `(by, victims)` pairs of this decision, and of all earlier ones since the last
            launch.
        host_used_tokens: tokens in host memory; None if the server keeps no KV there.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - an argument for each field
        self,
        free_tokens: int,
        evictable_tokens: int,
        used_tokens: int,
        queue: int,
        running: int,
        slots: int,
        full: bool,
        ratio: float,
        chunked: str | None,
        retracted: tuple[str, ...],
        aborted: tuple[str, ...],
        preempted: tuple[Preempted, ...],
        host_used_tokens: int | None,
        restored: tuple[Restored, ...] = (),
    ) -> None:
        self.free_tokens: Final = free_tokens
        self.evictable_tokens: Final = evictable_tokens
        self.used_tokens: Final = used_tokens
        self.queue: Final = queue
        self.running: Final = running
        self.slots: Final = slots
        self.full: Final = full
        self.ratio: Final = ratio
        self.chunked: Final = chunked
        self.retracted: Final = retracted
        self.aborted: Final = aborted
        self.preempted: Final = preempted
        self.host_used_tokens: Final = host_used_tokens
        self.restored: Final = restored


class RequestRecord:
    """A request that has finished, or was rejected or aborted. A time of -1 ns means never.

    Attributes:
        scheduled_ns: when the first batch with this request was decided.
        cached_tokens: prompt tokens that the cache held at that time.
        host_cached_tokens: those of the cached tokens that were loaded from host memory.
        aged: whether the fairness rule ever moved it to the front because of its long wait.
    """

    def __init__(self, request: Request, finish_ns: int = NEVER_NS) -> None:
        """The record of a request that ends at `finish_ns`, as it is now."""
        self.spec: Final = request.spec
        self.status: Final = request.status
        self.prompt_tokens: Final = len(request.spec.prompt)
        self.output_tokens: Final = request.num_generated
        self.cached_tokens = request.cached_tokens
        self.host_cached_tokens = request.host_cached_tokens
        self.scheduled_ns = request.scheduled_ns
        self.first_token_ns: Final = request.first_token_ns
        self.finish_ns: Final = finish_ns
        self.retractions = request.retractions
        self.preemptions = request.preemptions
        self.aged = request.is_aged
        self.verify_steps: Final = request.verify_steps
        self.drafted_tokens: Final = request.drafted_tokens
        self.accepted_tokens: Final = request.accepted_tokens

    def add_prefill(self, prefill: "RequestRecord") -> None:
        """Add to the record of a decode server what the request's prefill server noted."""
        self.cached_tokens = prefill.cached_tokens
        self.host_cached_tokens = prefill.host_cached_tokens
        self.scheduled_ns = prefill.scheduled_ns
        self.retractions += prefill.retractions
        self.preemptions += prefill.preemptions
        self.aged = self.aged or prefill.aged


class Decided:
    """What `EngineCore.begin_step` returns.

    Attributes:
        batch: the batch to run; None if nothing can run now.
        state: the server's state right after the decision; None without a batch.
        over: records of requests that this decision aborted because they can never fit.
        wakes_ns: with no batch and no step in flight, the time of the next decision that may
            launch something. None: decide again at once if requests wait, else when one arrives.
        preempted: `(by, victims)` pairs of this decision. If there are any and no batch, decide
            again at once: the next decision may launch something.
        waited_ns: how long the scheduler waited for copies to host memory while it decided; with
            vLLM how long the step, or one without a batch, waits for them.
    """

    def __init__(
        self,
        batch: Batch | None,
        state: StepState | None,
        over: Sequence[RequestRecord] = (),
        wakes_ns: int | None = None,
        preempted: Sequence[Preempted] = (),
        waited_ns: int = 0,
    ) -> None:
        self.waited_ns: Final = waited_ns
        self.batch: Final = batch
        self.state: Final = state
        self.over: Final = over
        self.wakes_ns: Final = wakes_ns
        self.preempted: Final = preempted

    def with_records(self, over: Sequence[RequestRecord]) -> "Decided":
        """The same decision, with the records of all passes of its step."""
        if len(over) == len(self.over):
            return self
        return Decided(self.batch, self.state, over, self.wakes_ns, self.preempted, self.waited_ns)

    def waiting(self, waited_ns: int) -> "Decided":
        """The same decision, whose step waits for this long."""
        return Decided(self.batch, self.state, self.over, self.wakes_ns, self.preempted, waited_ns)

    def waking(self, wakes_ns: int | None) -> "Decided":
        """The same decision, with this time of the next one that may launch something."""
        if wakes_ns == self.wakes_ns:
            return self
        return Decided(self.batch, self.state, self.over, wakes_ns, self.preempted, self.waited_ns)

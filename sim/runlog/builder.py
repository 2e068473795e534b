"""Builds a RunLog during a simulation: appends rows of numbers, and makes columns at the end."""

from collections.abc import Mapping, Sequence
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from sim.core.arrays import Int64
from sim.core.batch import Batch
from sim.core.errors import InputError
from sim.core.request import RequestSpec, Status
from sim.core.units import MAX_TIME_NS
from sim.engine.decode_run import DecodeRun
from sim.engine.records import RequestRecord, StepState
from sim.engine.request import TokenClock
from sim.runlog.buffers import FurtherBuffer, RowBuffer
from sim.runlog.columns import (
    NOT_YET_NS,
    FurtherTimes,
    RequestColumns,
    RunLog,
    StepColumns,
    joined_gaps,
)
from sim.runlog.servers import HandoverColumns

BEYOND_CLOCK = "the run takes more than 146 simulated years, beyond which there are no times"


class FurtherSteps:
    """The fast-forwarded decode steps after a step, which have the same rows.

    Attributes:
        decided_ns: when each step was decided; shape [num_steps].
        starts_ns, ends_ns: device start and end of each step; shape [num_steps].
        host_ns: host time of each step; shape [num_steps].
        total_device_ns, total_host_ns: of all steps.
        launch_ns: how long the host launches the kernels of each step; 0: they replay a graph.
        run: the rows' context, and the effect of the steps on the pool and the new-token ratio.
        state: the server's state before these steps. Under overlap it may differ from the state
            after the first step's decision: a request may have arrived or finished since.
    """

    # A named tuple takes seven times as long to make and to read, where it is compiled.
    def __init__(
        self,
        times_ns: tuple[Int64, Int64, Int64, Int64],
        sums_ns: tuple[int, int],
        launch_ns: int,
        run: DecodeRun,
        state: StepState,
    ) -> None:
        self.decided_ns, self.starts_ns, self.ends_ns, self.host_ns = times_ns
        self.total_device_ns, self.total_host_ns = sums_ns
        self.launch_ns = launch_ns
        self.run = run
        self.state = state


class StepRun:
    """One row of the run log: a step, and the fast-forwarded decode steps that followed it.

    A server makes it when it launches the step, and adds the further steps later.

    Attributes:
        replica: index of the server, or of the rank over all replicas.
        first_step: number of the first step on that server, from 0; set when the step ends.
        batch, state: the first step's batch, and the server's state right after its decision.
        decided_ns, host_ns: when the first step was decided, and its host time.
        launch_ns: how long the host launches the first step's kernels.
        further: the fast-forwarded steps, or None.
    """

    def __init__(  # noqa: PLR0913 - one argument for each time
        self,
        replica: int,
        batch: Batch,
        state: StepState,
        *,
        decided_ns: int,
        host_ns: int,
        start_ns: int,
        first_end_ns: int,
        launch_ns: int = 0,
    ) -> None:
        self.replica = replica
        self.first_step = 0
        self.batch = batch
        self.state = state
        self.decided_ns = decided_ns
        self.host_ns = host_ns
        self.launch_ns = launch_ns
        self.start_ns = start_ns
        if first_end_ns > MAX_TIME_NS:
            raise InputError(BEYOND_CLOCK, key=("latency",))
        self.first_end_ns = first_end_ns
        self.further: FurtherSteps | None = None

    @property
    def ready_ns(self) -> int:
        """When the host has prepared the first step, and begins to launch its kernels."""
        return self.decided_ns + self.host_ns

    @property
    def launched_ns(self) -> int:
        """When the host has launched all kernels of the first step."""
        return self.ready_ns + self.launch_ns

    @property
    def num_steps(self) -> int:
        return 1 if self.further is None else 1 + self.further.run.num_steps

    @property
    def end_ns(self) -> int:
        """When the device ends the last step."""
        return self.first_end_ns if self.further is None else int(self.further.ends_ns[-1])


# The columns of a request that are known when it arrives, and those known when it has ended, which
# are fields of `RequestRecord`.
_KNOWN_AT_FIRST = ("arrival_ns", "prompt_tokens", "priority", "replica", "warm_up")
_KNOWN_AT_LAST = (
    "scheduled_ns", "first_token_ns", "finish_ns", "cached_tokens", "host_cached_tokens",
    "output_tokens", "retractions", "preemptions", "aged", "verify_steps", "drafted_tokens",
    "accepted_tokens",
)  # fmt: skip
_at_last = attrgetter(*_KNOWN_AT_LAST)


class RunLogBuilder:
    """Collects requests and steps while they happen."""

    def __init__(self) -> None:
        self._rids: list[str] = []
        self._tenants: list[str] = []
        self._status: list[Status] = []
        self._row_of: dict[str, int] = {}
        self._submitted = RowBuffer(len(_KNOWN_AT_FIRST))
        self._over = RowBuffer(1 + len(_KNOWN_AT_LAST))
        self._steps = RowBuffer(len(StepColumns.__slots__))
        self._handovers: RowBuffer | None = None
        self._further: FurtherBuffer | None = None
        # What routers predict of requests that have not been submitted yet, and of others.
        self._predicted: dict[str, int] = {}
        self._predictions: RowBuffer | None = None
        self.num_over = self.num_step_rows = 0

    def keep_handovers(self) -> None:
        """The log is of servers that hand requests over; called before the first one."""
        self._handovers = RowBuffer(1 + len(HandoverColumns.__slots__))

    def keep_further_times(self) -> None:
        """Note the time of each fast-forwarded step; called before the first one."""
        self._further = FurtherBuffer()

    def predicted(self, rid: str, cached_tokens: int) -> None:
        """A router believes that so much of a request is cached where it is submitted next."""
        self._predicted[rid] = cached_tokens

    def submitted(self, spec: RequestSpec, prompt_tokens: int, replica: int) -> None:
        """A request arrived at a server."""
        if spec.rid in self._predicted:
            if self._predictions is None:
                self._predictions = RowBuffer(2)
            self._predictions.append((len(self._rids), self._predicted.pop(spec.rid)))
        self._row_of[spec.rid] = len(self._rids)
        self._rids.append(spec.rid)
        self._tenants.append(spec.tenant)
        self._status.append(Status.WAITING)
        self._submitted.append(
            (spec.arrival_ns, prompt_tokens, spec.priority or 0, replica, int(spec.warm_up))
        )

    def handed_over(self, rid: str, columns: tuple[int, ...]) -> None:
        """How a request that is over soon was handed over, in the order of `HandoverColumns`."""
        if self._handovers is not None:
            self._handovers.append((self._row_of[rid], *columns))

    def over(self, record: RequestRecord) -> None:
        """A request finished, or was rejected or aborted."""
        row = self._row_of.pop(record.spec.rid)
        self._status[row] = record.status
        self._over.append((row, *_at_last(record)))
        self.num_over += 1

    def stepped(self, run: StepRun) -> None:
        """A step ended, with the further steps that were fast-forwarded.

        They are one row, unless requests came or went between the first step and the others.
        """
        further = run.further
        if further is None:
            self._append(_first_row(run))
            return
        before, after = run.state, further.state
        is_one = (before.queue, before.slots) == (after.queue, after.slots)
        if not is_one:
            self._append(_first_row(run))
        self._append(_further_row(run, further, with_first=is_one))
        if self._further is not None:
            starts_ns, ends_ns = further.starts_ns, further.ends_ns
            if is_one:
                self._further.append(run.first_end_ns, starts_ns, ends_ns)
            else:
                # Of a row's first step the row itself has the time.
                self._further.append(int(ends_ns[0]), starts_ns[1:], ends_ns[1:])

    def _append(self, row: tuple[int, ...]) -> None:
        self._steps.append(row)
        self.num_step_rows += 1

    def build(self, clocks: Sequence[TokenClock], meta: Mapping[str, object]) -> RunLog:
        """The log so far, with the token gaps from the clocks, which then drop their gaps."""
        token_gaps, gap_at_ns = joined_gaps([clock.take() for clock in clocks])
        return RunLog(
            requests=RequestColumns(
                self._rids,
                self._tenants,
                [status.value for status in self._status],
                **self._request_columns(),
            ),
            steps=StepColumns.narrow(self._steps.take_columns()),
            gap_at_ns=gap_at_ns,
            token_gaps=token_gaps,
            meta=dict(meta),
            handovers=self._handover_columns(),
            further=None if self._further is None else FurtherTimes(*self._further.take()),
            predicted_tokens=self._predicted_tokens(),
        )

    def _predicted_tokens(self) -> Int64 | None:
        if self._predictions is None:
            return None
        row, cached_tokens = [column.widened() for column in self._predictions.take_columns()]
        predicted: Int64 = np.zeros(len(self._rids), dtype=np.int64)
        predicted[row] = cached_tokens
        return predicted

    def _handover_columns(self) -> HandoverColumns | None:
        if self._handovers is None:
            return None
        row, *noted = [column.widened() for column in self._handovers.take_columns()]
        columns = []
        for name, values in zip(HandoverColumns.__slots__, noted, strict=True):
            column = np.full(len(self._rids), 0 if name == "sent_tokens" else NOT_YET_NS)
            column[row] = values
            columns.append(column)
        return HandoverColumns(*columns)

    def _request_columns(self) -> dict[str, NDArray[np.int64]]:
        columns = {
            name: column.widened()
            for name, column in zip(_KNOWN_AT_FIRST, self._submitted.take_columns(), strict=True)
        }
        over = self._over.take_columns()
        row = next(over).widened()
        for name, values in zip(_KNOWN_AT_LAST, over, strict=True):
            not_yet = NOT_YET_NS if name.endswith("_ns") else 0
            columns[name] = np.zeros(len(self._rids), dtype=np.int64)
            if not_yet or (len(values) and values.compact().any()):
                columns[name][:] = not_yet
                columns[name][row] = values.widened()
        return columns


# Rows in the order of `StepColumns`. Making named tuples would take longer.


def _first_row(run: StepRun) -> tuple[int, ...]:
    """The row of a step without the further ones."""
    batch, state = run.batch, run.state
    num_prefill_tokens = num_cached_tokens = num_loaded_tokens = 0
    for row in batch.prefill:
        num_prefill_tokens += row.extend_len
        num_cached_tokens += row.prefix_len
        num_loaded_tokens += row.num_loaded_tokens
    return (
        run.replica,
        1,
        run.start_ns,
        run.first_end_ns,
        batch.mode,
        num_prefill_tokens,
        num_cached_tokens,
        num_loaded_tokens + _num_restored(state),
        len(batch.prefill),
        len(batch.decode_rids),
        batch.num_context_tokens,
        state.free_tokens,
        state.evictable_tokens,
        state.used_tokens,
        state.host_used_tokens or 0,
        state.used_tokens,
        state.slots,
        state.queue,
        run.first_end_ns - run.start_ns,
        run.host_ns,
    )


def _further_row(run: StepRun, further: FurtherSteps, *, with_first: bool) -> tuple[int, ...]:
    """The row of the further steps, which only decode; or of these and the first one."""
    state, passed, num_decode_rows = further.state, further.run, len(run.batch.decode_rids)
    num_steps, evictable_tokens = passed.num_steps, state.evictable_tokens
    not_evictable = state.free_tokens + state.used_tokens
    used_token_steps = not_evictable * num_steps - passed.free_token_steps
    num_context_tokens = run.batch.num_context_tokens + num_decode_rows * num_steps
    if passed.contexts is not None:
        num_context_tokens = int(passed.contexts[-1])
    if passed.evicted is not None:
        evictable_tokens -= int(passed.evicted[-1])
        not_evictable += int(passed.evicted[-1])
        used_token_steps += int(passed.evicted.sum())
    # `np.add.reduce` takes half the time of `sum()` on short arrays.
    device_ns = int(np.add.reduce(further.ends_ns - further.starts_ns))
    host_ns = int(np.add.reduce(further.host_ns))
    start_ns, num_loaded_tokens = int(further.starts_ns[0]), 0
    if with_first:
        num_steps += 1
        used_token_steps += run.state.used_tokens
        device_ns += run.first_end_ns - run.start_ns
        host_ns += run.host_ns
        start_ns, num_loaded_tokens = run.start_ns, _num_restored(run.state)
    return (
        run.replica,
        num_steps,
        start_ns,
        run.end_ns,
        run.batch.mode,
        0,
        0,
        num_loaded_tokens,
        0,
        num_decode_rows,
        num_context_tokens,
        passed.last_free_tokens,
        evictable_tokens,
        not_evictable - passed.last_free_tokens,
        state.host_used_tokens or 0,
        used_token_steps,
        state.slots,
        state.queue,
        device_ns,
        host_ns,
    )


def _num_restored(state: StepState) -> int:
    return sum([number for _, number in state.restored]) if state.restored else 0

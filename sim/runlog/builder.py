"""Collects a RunLog while a run goes on: appends numbers, makes columns at the end."""

from array import array
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from sim.core.request import RequestSpec, Status
from sim.engine.records import RequestRecord
from sim.engine.token_clock import TokenClock
from sim.runlog.columns import NOT_YET_NS, RequestColumns, RunLog, StepColumns, TokenGaps
from sim.runlog.steps import StepRun

_REQUEST_FIELDS = (
    "arrival_ns",
    "scheduled_ns",
    "first_token_ns",
    "finish_ns",
    "prompt_tokens",
    "cached_tokens",
    "host_cached_tokens",
    "output_tokens",
    "priority",
    "retractions",
    "preemptions",
    "aged",
    "replica",
)
_STEP_FIELDS = tuple(StepColumns.__slots__)


class RunLogBuilder:
    """Takes requests and steps in as they come."""

    def __init__(self) -> None:
        self._rids: list[str] = []
        self._tenants: list[str] = []
        self._status: list[str] = []
        self._requests = {name: array("q") for name in _REQUEST_FIELDS}
        self._row_of: dict[str, int] = {}
        self._steps = {name: array("q") for name in _STEP_FIELDS}
        self.num_over = 0

    def submitted(self, spec: RequestSpec, prompt_tokens: int, replica: int) -> None:
        """A request reached a server."""
        self._row_of[spec.rid] = len(self._rids)
        self._rids.append(spec.rid)
        self._tenants.append(spec.tenant)
        self._status.append(Status.WAITING.value)
        row = {"arrival_ns": spec.arrival_ns, "prompt_tokens": prompt_tokens}
        row |= {"priority": spec.priority or 0, "replica": replica}
        for name, column in self._requests.items():
            column.append(row.get(name, NOT_YET_NS if name.endswith("_ns") else 0))

    def over(self, record: RequestRecord) -> None:
        """A request finished, was rejected or aborted."""
        row = self._row_of.pop(record.spec.rid)
        columns = self._requests
        self._status[row] = record.status.value
        columns["scheduled_ns"][row] = record.scheduled_ns
        columns["first_token_ns"][row] = record.first_token_ns
        columns["finish_ns"][row] = record.finish_ns
        columns["cached_tokens"][row] = record.cached_tokens
        columns["host_cached_tokens"][row] = record.host_cached_tokens
        columns["output_tokens"][row] = record.output_tokens
        columns["retractions"][row] = record.retractions
        columns["preemptions"][row] = record.preemptions
        columns["aged"][row] = int(record.aged)
        self.num_over += 1

    def stepped(self, run: StepRun) -> None:
        """A run of steps was launched."""
        batch, state, num_steps = run.batch, run.further_state, run.num_steps
        free = run.last_free_tokens
        num_prefill_tokens = num_cached_tokens = num_loaded_tokens = 0
        for prefill_row in batch.prefill:
            num_prefill_tokens += prefill_row.extend_len
            num_cached_tokens += prefill_row.prefix_len
            num_loaded_tokens += prefill_row.num_loaded_tokens
        num_decode_rows = len(batch.decode_rids)
        values = (
            run.replica,
            num_steps,
            int(run.starts_ns[0]),
            int(run.ends_ns[-1]),
            batch.mode,
            num_prefill_tokens,
            num_cached_tokens,
            num_loaded_tokens,
            len(batch.prefill),
            num_decode_rows,
            batch.num_context_tokens + num_decode_rows * (num_steps - 1),
            free,
            state.evictable_tokens,
            state.free_tokens + state.used_tokens - free,
            state.host_used_tokens or 0,
            run.used_token_steps,
            state.slots,
            state.queue,
            int((run.ends_ns - run.starts_ns).sum()),
            int(run.host_ns.sum()),
        )
        for column, value in zip(self._steps.values(), values, strict=True):
            column.append(value)

    def build(self, clocks: Iterable[TokenClock], meta: Mapping[str, object]) -> RunLog:
        """Everything so far, with the token gaps of each server."""
        gap_ns, count = array("q"), array("q")
        for clock in clocks:
            gap_ns.extend(clock.gap_ns)
            count.extend(clock.count)
        requests = {name: _column(values) for name, values in self._requests.items()}
        return RunLog(
            requests=RequestColumns(self._rids, self._tenants, self._status, **requests),
            steps=StepColumns(**{name: _column(values) for name, values in self._steps.items()}),
            token_gaps=TokenGaps(_column(gap_ns), _column(count)),
            meta=dict(meta),
        )


def _column(values: "array[int]") -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)

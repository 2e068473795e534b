"""Collects a RunLog while a run goes on: appends rows of numbers, makes columns at the end."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sim.core.request import RequestSpec, Status
from sim.engine.records import RequestRecord
from sim.engine.token_clock import TokenClock
from sim.runlog.columns import NOT_YET_NS, RequestColumns, RunLog, StepColumns, StepRow, TokenGaps
from sim.runlog.steps import StepRun

# Rows that are packed at once: a few megabytes at most wait for it.
_ROWS_A_PACK = 1 << 14
_WIDTHS = (np.int8, np.int16, np.int32, np.int64)


class RowBuffer:
    """Rows of `num_columns` whole numbers below 2**63.

    Packed, a column of a few thousand rows takes the bytes that its largest number needs.
    """

    def __init__(self, num_columns: int) -> None:
        self._num_columns = num_columns
        self._num_rows = 0
        self._numbers = array("q")
        self._numbers_a_pack = _ROWS_A_PACK * num_columns
        self._packs: list[list[NDArray[np.signedinteger]]] = [[] for _ in range(num_columns)]

    def append(self, row: tuple[int, ...]) -> None:
        """Take a row of `num_columns` numbers in."""
        self._numbers.extend(row)
        if len(self._numbers) >= self._numbers_a_pack:
            self._pack()

    def take_columns(self) -> Iterator[NDArray[np.int64]]:
        """The columns, one after the other; each is forgotten. Shape [rows]."""
        self._pack()
        for packs in self._packs:
            column = np.zeros(self._num_rows, dtype=np.int64)
            start = 0
            for pack in packs:
                # Pages of zeros that nobody writes to take no memory.
                if pack.any():
                    column[start : start + len(pack)] = pack
                start += len(pack)
            packs.clear()
            yield column

    def _pack(self) -> None:
        table = np.array(self._numbers, dtype=np.int64).reshape(-1, self._num_columns)
        self._num_rows += len(table)
        del self._numbers[:]
        if len(table):
            for packs, column in zip(self._packs, table.T, strict=True):
                packs.append(_narrowed(column))


def _narrowed(column: NDArray[np.int64]) -> NDArray[np.signedinteger]:
    low, high = int(column.min()), int(column.max())
    for width in _WIDTHS:
        if np.iinfo(width).min <= low and high <= np.iinfo(width).max:
            return column.astype(width)
    raise OverflowError(f"{low} to {high} do not fit 64 bits")


# What is known of a request when it comes, and what is when it is over.
_KNOWN_AT_FIRST = ("arrival_ns", "prompt_tokens", "priority", "replica")
_KNOWN_AT_LAST = (
    "scheduled_ns",
    "first_token_ns",
    "finish_ns",
    "cached_tokens",
    "host_cached_tokens",
    "output_tokens",
    "retractions",
    "preemptions",
    "aged",
)


class RunLogBuilder:
    """Takes requests and steps in as they come."""

    def __init__(self) -> None:
        self._rids: list[str] = []
        self._tenants: list[str] = []
        self._status: list[str] = []
        self._row_of: dict[str, int] = {}
        self._submitted = RowBuffer(len(_KNOWN_AT_FIRST))
        self._over = RowBuffer(1 + len(_KNOWN_AT_LAST))
        self._steps = RowBuffer(len(StepRow._fields))
        self.num_over = 0

    def submitted(self, spec: RequestSpec, prompt_tokens: int, replica: int) -> None:
        """A request reached a server."""
        self._row_of[spec.rid] = len(self._rids)
        self._rids.append(spec.rid)
        self._tenants.append(spec.tenant)
        self._status.append(Status.WAITING.value)
        self._submitted.append((spec.arrival_ns, prompt_tokens, spec.priority or 0, replica))

    def over(self, record: RequestRecord) -> None:
        """A request finished, was rejected or aborted."""
        row = self._row_of.pop(record.spec.rid)
        self._status[row] = record.status.value
        self._over.append(
            (
                row,
                record.scheduled_ns,
                record.first_token_ns,
                record.finish_ns,
                record.cached_tokens,
                record.host_cached_tokens,
                record.output_tokens,
                record.retractions,
                record.preemptions,
                record.aged,
            )
        )
        self.num_over += 1

    def stepped(self, run: StepRun) -> None:
        """A run of steps was launched."""
        batch, state, further = run.batch, run.state, run.further
        num_prefill_tokens = num_cached_tokens = num_loaded_tokens = 0
        for row in batch.prefill:
            num_prefill_tokens += row.extend_len
            num_cached_tokens += row.prefix_len
            num_loaded_tokens += row.num_loaded_tokens
        num_decode_rows = len(batch.decode_rids)
        num_steps, num_context_tokens = 1, batch.num_context_tokens
        end_ns, host_ns = run.end_ns, run.host_ns
        device_ns = run.first_end_ns - run.start_ns
        free_tokens, used_token_steps = state.free_tokens, state.used_tokens
        if further is not None:
            num_further = further.run.num_steps
            num_steps += num_further
            num_context_tokens += num_decode_rows * num_further
            device_ns += int((further.ends_ns - further.starts_ns).sum())
            host_ns += int(further.host_ns.sum())
            state, free_tokens = further.state, further.run.last_free_tokens
            not_evictable = state.free_tokens + state.used_tokens
            used_token_steps += not_evictable * num_further - further.run.free_token_steps
        self._steps.append(
            StepRow(
                replica=run.replica,
                num_steps=num_steps,
                t_start_ns=run.start_ns,
                t_end_ns=end_ns,
                mode=batch.mode,
                num_prefill_tokens=num_prefill_tokens,
                num_cached_tokens=num_cached_tokens,
                num_loaded_tokens=num_loaded_tokens,
                num_prefill_rows=len(batch.prefill),
                num_decode_rows=num_decode_rows,
                num_context_tokens=num_context_tokens,
                free_tokens=free_tokens,
                evictable_tokens=state.evictable_tokens,
                used_tokens=state.free_tokens + state.used_tokens - free_tokens,
                host_used_tokens=state.host_used_tokens or 0,
                used_token_steps=used_token_steps,
                running=state.slots,
                queue=state.queue,
                device_ns=device_ns,
                host_ns=host_ns,
            )
        )

    def build(self, clocks: Iterable[TokenClock], meta: Mapping[str, object]) -> RunLog:
        """Everything so far, with the token gaps of each server, which its clock forgets."""
        return RunLog(
            requests=RequestColumns(
                self._rids, self._tenants, self._status, **self._request_columns()
            ),
            steps=StepColumns(
                **dict(zip(StepRow._fields, self._steps.take_columns(), strict=True))
            ),
            token_gaps=_token_gaps(list(clocks)),
            meta=dict(meta),
        )

    def _request_columns(self) -> dict[str, NDArray[np.int64]]:
        columns = dict(zip(_KNOWN_AT_FIRST, self._submitted.take_columns(), strict=True))
        row, *at_last = self._over.take_columns()
        for name, values in zip(_KNOWN_AT_LAST, at_last, strict=True):
            not_yet = NOT_YET_NS if name.endswith("_ns") else 0
            columns[name] = np.full(len(self._rids), not_yet, dtype=np.int64)
            columns[name][row] = values
        return columns


def _token_gaps(clocks: Sequence[TokenClock]) -> TokenGaps:
    """Those of all servers, one after the other."""
    sizes = [len(clock.gap_ns) for clock in clocks]
    gaps = TokenGaps(np.empty(sum(sizes), dtype=np.int64), np.empty(sum(sizes), dtype=np.int64))
    start = 0
    for clock, size in zip(clocks, sizes, strict=True):
        gaps.gap_ns[start : start + size] = clock.gap_ns
        gaps.count[start : start + size] = clock.count
        start += size
        clock.forget()
    return gaps

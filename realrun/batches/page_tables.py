"""The page tables of the running requests, on the host: which pages hold a request's tokens."""

from typing import NamedTuple

import numpy as np

from realrun.batches.batch_plan import BatchPlan, Int32s, plan_batch
from sim.core.arrays import Int64
from sim.core.batch import Batch, ForwardMode, PrefillRow
from sim.core.errors import InvariantError
from sim.engine.core import EngineCore
from sim.engine.page_pool import PageIdSpan, Span

_FIRST_COLUMNS = 64


class BatchRows(NamedTuple):
    """The rows of a batch in batch order, prefill rows first; arrays have shape [num_rows].

    Attributes:
        slots: int64, the row of each request in the page tables.
        query_lens: int32, new tokens.
        kv_lens: int32, all tokens after the step.
        samples: int64, how many tokens the row samples: none for a chunk of a prompt that has more,
            else one after its last known token, and one after each draft.
    """

    slots: Int64
    query_lens: Int32s
    kv_lens: Int32s
    samples: Int64


class PageTables:
    """One row, called a slot, for each running request: its number of tokens and its page ids.

    This class counts the tokens itself, in an array, because the engine computes each length from
    two numbers (see `Request`), row by row. A decode row gets its next page when its last one is
    full. All pages of a row are read again from the engine when the row is prefilled, and after its
    prefill went into the prefix cache: the cache may have held the same tokens already, and then
    the request uses the cache's pages.
    """

    def __init__(self, engine: EngineCore, num_slots: int) -> None:
        self._engine = engine
        self._page_size = engine.kv.page_size
        self._slot_of: dict[str, int] = {}
        self._free_slots = list(range(num_slots - 1, -1, -1))
        self._pages = np.zeros((num_slots, _FIRST_COLUMNS), dtype=np.int32)
        self._num_tokens = np.zeros(num_slots, dtype=np.int32)
        self._outdated: set[str] = set()
        self._decode_rids: object = None
        self._decode_slots = np.empty(0, dtype=np.int64)

    # ---- slots ---------------------------------------------------------------------------------

    def slot(self, rid: str) -> int:
        """The slot of a request; it gets one if it has none."""
        if rid not in self._slot_of:
            if not self._free_slots:
                raise InvariantError("more requests run than there are slots")
            self._slot_of[rid] = self._free_slots.pop()
            self._decode_rids = None
        return self._slot_of[rid]

    def leave(self, rid: str) -> None:
        """Free the slot of a request that has ended or was put back into the queue."""
        slot = self._slot_of.pop(rid, None)
        if slot is not None:
            self._free_slots.append(slot)
            self._outdated.discard(rid)
            self._decode_rids = None

    def note_cached(self, rid: str) -> None:
        """Note that a request's prefill went into the prefix cache: its pages may have changed."""
        if rid in self._slot_of:
            self._outdated.add(rid)

    # ---- one batch -----------------------------------------------------------------------------

    def advance(self, batch: Batch) -> BatchRows:
        """Update the tables for a batch that was just decided; returns its rows."""
        for rid in batch.stopped_rids:
            self.leave(rid)
        prefill = [self._prefill(row.rid, row.prefix_len + row.extend_len) for row in batch.prefill]
        decode = self._decode(batch)
        slots = np.concatenate([np.array(prefill, dtype=np.int64), decode])
        query_lens = np.ones(len(slots), dtype=np.int32)
        query_lens[: len(prefill)] = [row.extend_len for row in batch.prefill]
        query_lens[len(prefill) :] += np.array(batch.drafts or [0], dtype=np.int32)
        samples = query_lens.astype(np.int64)
        samples[: len(prefill)] = [self._num_samples(row) for row in batch.prefill]
        rows = BatchRows(slots, query_lens, self._num_tokens[slots], samples)
        if int(rows.kv_lens.sum()) != batch.num_context_tokens:
            raise InvariantError("the page tables and the engine disagree on a batch's tokens")
        return rows

    def plan(self, rows: BatchRows) -> BatchPlan:
        """The batch plan of these rows."""
        num_columns = -(-int(rows.kv_lens.max()) // self._page_size)
        return plan_batch(
            page_table=self._pages[rows.slots, :num_columns],
            query_lens=rows.query_lens,
            kv_lens=rows.kv_lens,
            samples=rows.samples,
            page_size=self._page_size,
        )

    def _num_samples(self, row: PrefillRow) -> int:
        """None, or one after the last known token and one for each that stands for a draft."""
        num_known = self._engine.requests[row.rid].num_tokens
        return row.samples * (1 + max(row.prefix_len + row.extend_len - num_known, 0))

    def _prefill(self, rid: str, num_tokens: int) -> int:
        slot = self.slot(rid)
        self._num_tokens[slot] = num_tokens
        self._read_pages(rid, slot)
        return slot

    def _decode(self, batch: Batch) -> Int64:
        if batch.mode is ForwardMode.EXTEND:
            return np.empty(0, dtype=np.int64)
        if batch.drafts:
            # The rows may have lost rejected tokens since their last step.
            requests = [self._engine.requests[rid] for rid in batch.decode_rids]
            lost = [self._prefill(request.rid, request.seq_len) for request in requests]
            return np.array(lost, dtype=np.int64)
        if batch.decode_rids is not self._decode_rids:
            self._decode_rids = batch.decode_rids
            self._decode_slots = np.array(
                [self._slot_of[rid] for rid in batch.decode_rids], dtype=np.int64
            )
        slots = self._decode_slots
        needs_page = self._num_tokens[slots] % self._page_size == 0
        self._num_tokens[slots] += 1
        for row in np.flatnonzero(needs_page).tolist():
            self._append_page(batch.decode_rids[row], int(slots[row]))
        for rid in self._outdated:
            self._read_pages(rid, self._slot_of[rid])
        self._outdated.clear()
        return slots

    def _append_page(self, rid: str, slot: int) -> None:
        num_tokens = int(self._num_tokens[slot])
        last = self._spans(rid, num_tokens)[-1]
        column = (num_tokens - 1) // self._page_size
        self._make_room(column + 1)
        self._pages[slot, column] = _ids(last)[-1]

    def _read_pages(self, rid: str, slot: int) -> None:
        num_tokens = int(self._num_tokens[slot])
        spans = self._spans(rid, num_tokens)
        ids = np.concatenate([_ids(span) for span in spans])
        if len(ids) != -(-num_tokens // self._page_size):
            raise InvariantError(f"request {rid} has {len(ids)} pages for {num_tokens} tokens")
        self._make_room(len(ids))
        self._pages[slot, : len(ids)] = ids

    def _spans(self, rid: str, num_tokens: int) -> list[Span]:
        return self._engine.scheduler.spans(self._engine.requests[rid], num_tokens)

    def _make_room(self, num_columns: int) -> None:
        if num_columns > self._pages.shape[1]:
            wider = np.zeros((len(self._pages), 2 * num_columns), dtype=np.int32)
            wider[:, : self._pages.shape[1]] = self._pages
            self._pages = wider


def _ids(span: Span) -> Int32s:
    if not isinstance(span, PageIdSpan):
        raise InvariantError("a real runner needs a pool with page ids")
    return span.ids

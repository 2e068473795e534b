"""The layout of one step's batch for attention: positions, slots to write, and pages to read."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.core.arrays import Int64
from sim.core.errors import InvariantError

Int32s = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class BatchPlan:
    """One forward pass over rows of different lengths; all rows' new tokens form one sequence.

    Rows are in batch order: prefill rows, then decode rows. `indptr` arrays are offsets: row i
    owns the entries from indptr[i] up to indptr[i + 1].

    Attributes:
        page_size: tokens of a page.
        query_lens: int32 [num_rows], new tokens of each row (1, and its drafts, for a decode row).
        kv_lens: int32 [num_rows], tokens that each row attends to, its new ones included.
        positions: int64 [num_tokens], position of each new token in its request.
        write_slots: int64 [num_tokens], the slot for each new token's K and V, which is
            page id * page_size + offset in the page.
        qo_indptr: int32 [num_rows + 1], offsets into the new tokens.
        kv_indptr: int32 [num_rows + 1], offsets into `kv_indices`.
        kv_indices: int32 [num_pages_used], page ids, row by row.
        last_page_len: int32 [num_rows], tokens in each row's last page, 1 to page_size.
        sample_tokens: int64 [num_samples], indices of the new tokens after which the model samples.
        samples_all: whether the model samples after every new token, as it does in decode rows.
    """

    page_size: int
    query_lens: Int32s
    kv_lens: Int32s
    positions: Int64
    write_slots: Int64
    qo_indptr: Int32s
    kv_indptr: Int32s
    kv_indices: Int32s
    last_page_len: Int32s
    sample_tokens: Int64
    samples_all: bool

    @property
    def num_rows(self) -> int:
        return len(self.query_lens)

    @property
    def num_tokens(self) -> int:
        """Number of new tokens of all rows."""
        return len(self.positions)

    @property
    def decode_only(self) -> bool:
        """Whether every row has one new token and samples."""
        return self.samples_all and self.num_tokens == self.num_rows

    @property
    def num_tokens_read_again(self) -> int:
        """Tokens whose K and V `one_token_rows` reads more than once, each time after the first."""
        return int((self.query_lens.astype(np.int64) - 1) @ self.kv_lens)


def plan_batch(
    *, page_table: Int32s, query_lens: Int32s, kv_lens: Int32s, samples: Int64, page_size: int
) -> BatchPlan:
    """Lay out one step.

    Args:
        page_table: int32 [num_rows, at least the pages of the longest row], each row's page ids.
        query_lens: int32 [num_rows], new tokens of each row, at least 1.
        kv_lens: int32 [num_rows], all tokens of each row after the step.
        samples: int64 [num_rows], after how many of its last new tokens the row samples.
        page_size: tokens of a page.

    Raises:
        InvariantError: a row has no new tokens, more new tokens than tokens, or more tokens than
            its pages hold.
    """
    _check_lengths(page_table, query_lens, kv_lens, page_size)
    qo_indptr = _offsets(query_lens)
    rows = np.repeat(np.arange(len(query_lens)), query_lens)
    # A token's position is the row's tokens before the step plus its index among the new ones.
    first_positions = kv_lens.astype(np.int64) - query_lens - qo_indptr[:-1]
    positions = first_positions[rows] + np.arange(len(rows))
    pages_of_tokens = page_table[rows, positions // page_size].astype(np.int64)
    num_pages = -(-kv_lens // page_size)
    return BatchPlan(
        page_size=page_size,
        query_lens=query_lens,
        kv_lens=kv_lens,
        positions=positions,
        write_slots=pages_of_tokens * page_size + positions % page_size,
        qo_indptr=qo_indptr,
        kv_indptr=_offsets(num_pages),
        # One copy for each row, because a mask over the whole table is slow when pages are small.
        kv_indices=np.concatenate(
            [pages[:count] for pages, count in zip(page_table, num_pages.tolist(), strict=True)]
        ),
        last_page_len=(kv_lens - 1) % page_size + 1,
        sample_tokens=np.flatnonzero(np.arange(len(rows)) >= (qo_indptr[1:] - samples)[rows]),
        samples_all=bool((samples == query_lens).all()),
    )


def one_token_rows(plan: BatchPlan) -> BatchPlan:
    """The same step with a row for each new token, which attends to all tokens up to itself.

    A layer writes the K and V of all new tokens before it attends, so the results are the same.
    """
    if plan.num_tokens == plan.num_rows:
        return plan
    kv_lens = (plan.positions + 1).astype(np.int32)
    num_pages = -(-kv_lens // plan.page_size)
    first_pages = np.repeat(plan.kv_indptr[:-1], plan.query_lens)
    spans = zip(first_pages.tolist(), num_pages.tolist(), strict=True)
    return BatchPlan(
        page_size=plan.page_size,
        query_lens=np.ones(plan.num_tokens, dtype=np.int32),
        kv_lens=kv_lens,
        positions=plan.positions,
        write_slots=plan.write_slots,
        qo_indptr=np.arange(plan.num_tokens + 1, dtype=np.int32),
        kv_indptr=_offsets(num_pages),
        kv_indices=np.concatenate([plan.kv_indices[page : page + n] for page, n in spans]),
        last_page_len=(kv_lens - 1) % plan.page_size + 1,
        sample_tokens=plan.sample_tokens,
        samples_all=plan.samples_all,
    )


def pad_decodes(plan: BatchPlan, num_rows: int, scratch_page: int) -> BatchPlan:
    """Pad a decode-only plan to `num_rows` rows. Added rows have one token, on the scratch page.

    Raises:
        InvariantError: the plan is not decode-only, or has more than `num_rows` rows.
    """
    num_pads = num_rows - plan.num_rows
    if not plan.decode_only or num_pads < 0:
        raise InvariantError(f"{plan.num_rows} rows cannot be padded to {num_rows} decode rows")
    if not num_pads:
        return plan
    ones = np.ones(num_pads, dtype=np.int32)
    slots = np.full(num_pads, scratch_page * plan.page_size, dtype=np.int64)
    pages = np.full(num_pads, scratch_page, dtype=np.int32)
    more_pages = np.arange(1, num_pads + 1, dtype=np.int32) + plan.kv_indptr[-1]
    return BatchPlan(
        page_size=plan.page_size,
        query_lens=np.concatenate([plan.query_lens, ones]),
        kv_lens=np.concatenate([plan.kv_lens, ones]),
        positions=np.concatenate([plan.positions, np.zeros(num_pads, dtype=np.int64)]),
        write_slots=np.concatenate([plan.write_slots, slots]),
        qo_indptr=np.arange(num_rows + 1, dtype=np.int32),
        kv_indptr=np.concatenate([plan.kv_indptr, more_pages]),
        kv_indices=np.concatenate([plan.kv_indices, pages]),
        last_page_len=np.concatenate([plan.last_page_len, ones]),
        sample_tokens=np.arange(num_rows, dtype=np.int64),
        samples_all=True,
    )


def _check_lengths(page_table: Int32s, query_lens: Int32s, kv_lens: Int32s, page_size: int) -> None:
    if query_lens.min(initial=1) < 1 or (query_lens > kv_lens).any():
        raise InvariantError("a row has no new tokens, or more new tokens than tokens")
    if kv_lens.max(initial=0) > page_table.shape[1] * page_size:
        raise InvariantError("a row has more tokens than its pages hold")


def _offsets(counts: Int32s) -> Int32s:
    offsets = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    return offsets

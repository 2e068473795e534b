"""Decode steps that verify draft tokens of each row: speculative decoding.

Rules 26, 27 and 29 of docs/explanation/speculation.md. SGLang 0.5.23: `eagle_prepare_for_decode` in
speculative/eagle_utils.py, `page_aligned_decode_alloc_lens` in mem_cache/allocation_sizing.py,
`_new_tokens_required_next_decode_spec_v2` in managers/schedule_batch.py, and
`_resolve_spec_v2_tokens` in managers/scheduler_components/batch_result_processor.py.
"""

from collections.abc import Collection, Sequence

import numpy as np

from sim.core.arrays import Int64
from sim.core.batch import ForwardMode
from sim.engine.decode_run import DraftRun
from sim.engine.rows import RowLaunch
from sim.engine.running_batch import R, RowNames, RunningBatch
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.config import places_per_step
from sim.sglang.request import SglangBatch, SglangLaunch, SglangRequest
from sim.sglang.scheduler.server import RowSteps

# Under overlap a step is decided before it is known how many places the step before has used.
_STEPS_AHEAD = 2


class DraftSteps(RowSteps):
    """Decode steps whose rows get a token, and those of their drafts that are accepted.

    A request's `seq_len` counts all its places for KV, those for coming draft tokens included.
    """

    def __init__(self, kv: KVCacheManager, num_drafts: int, num_draft_steps: int) -> None:
        """`num_drafts`: tokens that a row drafts; `num_draft_steps`: the drafter's passes."""
        super().__init__(kv)
        self.in_lockstep = False
        self._num_drafts = num_drafts
        self._page_size = kv.page_size
        self._num_ahead = _STEPS_AHEAD * places_per_step(num_draft_steps, 1 + num_drafts)

    def new_batch(self) -> SglangBatch:
        return IndependentRows(self._kv.page_size)

    # ---- places for KV -------------------------------------------------------------------------

    def _num_needed(self, row: SglangRequest) -> tuple[int, int]:
        """Places and pages that a row lacks for its next step; it gets places in whole pages."""
        page_size, seq_len = self._page_size, row.seq_len
        end = row.num_computed + self._num_ahead + page_size - 1
        end -= end % page_size
        if end <= seq_len:
            return 0, 0
        return end - seq_len, end // page_size - (seq_len + page_size - 1) // page_size

    def num_new_pages(self, running: SglangBatch) -> int:
        return self.num_new_pages_of(running.requests)

    def num_new_pages_of(self, rows: list[SglangRequest]) -> int:
        return sum([self._num_needed(row)[1] for row in rows])

    def begin(self, running: SglangBatch) -> None:
        rows, num_places, num_pages = running.requests, 0, 0
        for row in rows:
            row_places, row_pages = self._num_needed(row)
            row.seq_len += row_places
            num_places += row_places
            num_pages += row_pages
        self._kv.decode_with_drafts(len(rows), num_places, num_pages)

    # ---- many steps at once ----------------------------------------------------------------------

    def run(self, rows: Sequence[SglangRequest], outputs: Int64, *, overlaps: bool) -> DraftRun:
        """The next decode steps of these rows, as far as there are pages for them.

        `outputs` are output tokens of each row now, and after each of the next results; shape
        [num_rows, 1 + num_steps]. The next result is that of the step in flight. If the schedule
        `overlaps`, the next step is decided before it.
        """
        page_size, num_new = self._page_size, 1 + self._num_drafts
        seq_len = np.array([row.seq_len for row in rows], dtype=np.int64)
        computed = np.array([row.num_computed for row in rows], dtype=np.int64)
        known = outputs[:, :-1] if overlaps else outputs[:, 1:]
        # As far as the results are known when each step is decided.
        known = known + (computed - outputs[:, 0])[:, np.newaxis]
        places = known + (self._num_ahead + page_size - 1)
        pages, pages_before = places, seq_len
        if page_size > 1:
            pages = places // page_size
            places = pages * page_size
            pages_before = -(-seq_len // page_size)
        # A row keeps the places that it has.
        np.maximum(places, seq_len[:, np.newaxis], out=places)
        pages = np.maximum(pages, pages_before[:, np.newaxis])
        run = DraftRun(
            outputs,
            places,
            contexts=known.sum(axis=0) + num_new * len(rows),
            longest=known.max(axis=0) + num_new,
            shortest=known.min(axis=0) + num_new,
            new_places=_growth(places, seq_len),
            new_pages=_growth(pages, pages_before),
        )
        return run.first(self._num_affordable(run))

    def _num_affordable(self, run: DraftRun) -> int:
        """How many steps of a run find pages, and find them without eviction to host memory.

        When such a copy begins depends on the time of the step.
        """
        kv, num_pages = self._kv, run.new_pages.cumsum()
        if not kv.parts:
            room = (kv.free_tokens + kv.evictable_tokens) // self._page_size
            return int(num_pages.searchsorted(room, side="right"))
        slack = len(run.outputs) * self._page_size if self._page_size > 1 else 0
        free_tokens = kv.free_tokens - (num_pages - run.new_pages) * self._page_size
        finds = (run.new_places == 0) | (free_tokens >= run.new_places + slack)
        return int(np.logical_and.accumulate(finds).sum())

    def take(self, rows: Sequence[SglangRequest], run: DraftRun) -> Int64:
        """Begin all steps of a run, and take in the results before the last one's.

        Returns the tokens evicted from the prefix cache so far, after each step; shape [num_steps].
        """
        kv, num_rows = self._kv, len(rows)
        evictable = kv.evictable_tokens
        evicted: list[int] = []
        needs = zip(run.new_places.tolist(), run.new_pages.tolist(), strict=True)
        for num_places, num_pages in needs:
            kv.can_decode(num_pages)
            kv.decode_with_drafts(num_rows, num_places, num_pages)
            evicted.append(evictable - kv.evictable_tokens)
        gained = (run.outputs[:, -1] - run.outputs[:, 0]).tolist()
        ends = zip(rows, gained, run.places[:, -1].tolist(), strict=True)
        for row, num_tokens, end_of_places in ends:
            row.num_computed += num_tokens
            row.seq_len = end_of_places
            row.in_mixed_step = False
        return np.array(evicted, dtype=np.int64)

    # ---- launches and results --------------------------------------------------------------------

    def launch(
        self,
        mode: ForwardMode,
        prefill: list[SglangRequest],
        decode: list[SglangRequest],
        chunked: tuple[SglangRequest, ...] = (),
    ) -> SglangLaunch:
        """Rows of a mixed step decode one token each, without drafts."""
        num_drafts = 0 if mode is ForwardMode.MIXED else self._num_drafts
        for row in prefill:
            row.num_computed, row.in_mixed_step = row.extend_end, False
        return RowLaunch(
            mode,
            prefill,
            decode,
            chunked,
            drafts=[num_drafts] * len(decode),
            contexts=[row.num_computed + 1 + num_drafts for row in decode],
            padding=[0] * len(prefill),
        )

    def prompt_computed(self, request: SglangRequest) -> None:
        request.chunk_computed()

    def verified(self, request: SglangRequest, num_drafts: int, num_sampled: int) -> None:
        request.num_computed += num_sampled
        request.in_mixed_step = num_drafts == 0
        if num_drafts:
            self._kv.verified(request.kv, request.num_computed, num_sampled)

    def give_up(self, request: SglangRequest) -> None:
        request.is_given_up = True

    def num_cacheable(self, request: SglangRequest) -> int:
        """The tokens whose KV is computed, but none behind the end of the output.

        If a step has accepted tokens behind the end of the output, the output's last token has KV.
        If the request's client has given up, those tokens are cached, too.
        """
        num_tokens = request.num_computed - request.in_mixed_step
        return num_tokens if request.is_given_up else min(num_tokens, request.num_tokens)


def _growth(of_rows: Int64, before: Int64) -> Int64:
    """By how much the rows have grown together in each step; shape [num_steps].

    `of_rows` has shape [num_rows, num_steps], `before` shape [num_rows].
    """
    growth: Int64 = of_rows.sum(axis=0)
    growth[1:] -= growth[:-1].copy()
    growth[0] -= before.sum()
    return growth


class IndependentRows(RunningBatch[R]):
    """Rows whose lengths are their own: the batch's counters stay 0.

    What all rows need together is computed anew each time, and there is no fast-forward.
    """

    def remove(self, leaving: Collection[R]) -> None:
        if leaving:
            for request in leaving:
                request.leave()
            gone = set(map(id, leaving))
            self._set([request for request in self.requests if id(request) not in gone])

    def _set(self, requests: list[R], joining: Sequence[R] = ()) -> None:
        self.requests = requests
        self.rids = RowNames(requests)
        for request in joining:
            request.join(self)

    def reserved_tokens(self, clip: int, ratio: float, known_ratio: float = 1.0) -> float:
        reserved = 0.0
        for request in self.requests:
            left = min(request.max_new_tokens - request.num_generated, clip)
            reserved += left * (known_ratio if request.spec.ignore_eos else ratio)
        return reserved

    def rows_at_limit(self, num_tokens_ahead: int = 0) -> list[R]:
        return [
            request
            for request in self.requests
            if request.num_generated + num_tokens_ahead >= request.max_new_tokens
        ]

"""Speculative decoding: a decode step verifies draft tokens of each row.

Rules 26, 27 and 29 of docs/explanation/speculation.md. SGLang 0.5.23: `eagle_prepare_for_decode` in
speculative/eagle_utils.py, `page_aligned_decode_alloc_lens` in mem_cache/allocation_sizing.py,
`_new_tokens_required_next_decode_spec_v2` in managers/schedule_batch.py, and
`_resolve_spec_v2_tokens` in managers/scheduler_components/batch_result_processor.py.
"""

from collections.abc import Collection, Sequence

from sim.core.batch import ForwardMode
from sim.engine.results import RowLaunch
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
        self._num_ahead = _STEPS_AHEAD * places_per_step(num_draft_steps, 1 + num_drafts)

    def new_batch(self) -> SglangBatch:
        return IndependentRows(self._kv.page_size)

    # ---- places for KV -------------------------------------------------------------------------

    def _end_of_places(self, row: SglangRequest) -> int:
        """Where the places of a row have to end for its next step, in whole pages."""
        return max(row.seq_len, self._kv.ceil_page(row.num_computed + self._num_ahead))

    def num_new_pages(self, running: SglangBatch) -> int:
        return self.num_new_pages_of(running.requests)

    def num_new_pages_of(self, rows: list[SglangRequest]) -> int:
        kv = self._kv
        num_tokens = 0
        for row in rows:
            num_tokens += kv.ceil_page(self._end_of_places(row)) - kv.ceil_page(row.seq_len)
        return num_tokens // kv.page_size

    def begin(self, running: SglangBatch) -> None:
        rows, num_tokens = running.requests, 0
        num_pages = self.num_new_pages_of(rows)
        for row in rows:
            num_tokens += self._end_of_places(row) - row.seq_len
        self._kv.decode_with_drafts(len(rows), num_tokens, num_pages)
        for row in rows:
            row.seq_len = self._end_of_places(row)

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

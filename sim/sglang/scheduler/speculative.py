"""Speculative decoding: a decode step verifies draft tokens of each row.

Rules 26, 27 and 29 of docs/explanation/speculation.md. SGLang 0.5.23: `eagle_prepare_for_decode` in
speculative/eagle_utils.py, `page_aligned_decode_alloc_lens` in mem_cache/allocation_sizing.py,
`_new_tokens_required_next_decode_spec_v2` in managers/schedule_batch.py, and
`_resolve_spec_v2_tokens` in managers/scheduler_components/batch_result_processor.py.
"""

from collections.abc import Sequence

from sim.core.batch import ForwardMode
from sim.core.errors import InvariantError
from sim.core.request import RequestSpec
from sim.engine.acceptance import Speculation
from sim.engine.row_engine import RowLaunch
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.cache.request_kv import RequestKV
from sim.sglang.config import SchedulerConfig
from sim.sglang.drafting import places_per_step
from sim.sglang.policies.policy import SchedulePolicy
from sim.sglang.request import SglangDraftRequest, SglangLaunch, SglangRequest
from sim.sglang.scheduler.scheduler import SglangScheduler

# Under overlap a step is decided before it is known how many places the step before has used.
_STEPS_AHEAD = 2


class SpeculativeSglangScheduler(SglangScheduler):
    """The scheduler of an SGLang server with speculative decoding.

    A request's `seq_len` counts all its places for KV, those for coming draft tokens included.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        speculation: Speculation,
        *,
        kv: KVCacheManager,
        policy: SchedulePolicy,
    ) -> None:
        super().__init__(config, kv=kv, policy=policy)
        self._num_drafts = speculation.num_tokens
        num_places = places_per_step(config.speculative_num_steps, 1 + speculation.num_tokens)
        self._num_ahead = _STEPS_AHEAD * num_places

    # ---- requests ------------------------------------------------------------------------------

    def _state_of(self, spec: RequestSpec, kv: RequestKV, limit: int) -> SglangRequest:
        return SglangDraftRequest(spec, kv, limit=limit, priority=self._config.least_priority)

    def abort(self, request: SglangRequest, in_flight: Sequence[SglangLaunch]) -> bool:
        _drafting(request).is_given_up = True
        return super().abort(request, in_flight)

    # ---- places for KV -------------------------------------------------------------------------

    def _end_of_places(self, request: SglangDraftRequest) -> int:
        """Where the places of a row have to end for its next step, in whole pages."""
        return max(request.seq_len, self._kv.ceil_page(request.num_computed + self._num_ahead))

    @property
    def _num_new_pages(self) -> int:
        return self._new_pages_of(self.running.requests)

    def _new_pages_of(self, rows: list[SglangRequest]) -> int:
        kv = self._kv
        num_tokens = 0
        for row in rows:
            end = kv.ceil_page(self._end_of_places(_drafting(row)))
            num_tokens += end - kv.ceil_page(row.seq_len)
        return num_tokens // kv.page_size

    def _begin_decode(self) -> None:
        rows, num_tokens, num_pages = self.running.requests, 0, self._num_new_pages
        self._kv.begin_decode(rows)
        for row in rows:
            end = self._end_of_places(_drafting(row))
            num_tokens += end - row.seq_len
        self._kv.decode_with_drafts(len(rows), num_tokens, num_pages)
        for row in rows:
            row.seq_len = self._end_of_places(_drafting(row))

    def give_back(self, request: SglangRequest) -> None:
        """Put the request's tokens into the prefix cache, then free its KV and slot.

        If a step has accepted tokens behind the end of the output, the output's last token has KV.
        If its client has given up, those tokens are cached, too.
        """
        row = _drafting(request)
        num_tokens = row.num_computed - row.in_mixed_step
        if not row.is_given_up:
            num_tokens = min(num_tokens, row.num_tokens)
        self._checkpoint(row, num_tokens, is_finished=True)
        self._release(row)

    # ---- launches ------------------------------------------------------------------------------

    def _new_launch(
        self,
        mode: ForwardMode,
        prefill: list[SglangRequest],
        decode: list[SglangRequest],
        chunked: tuple[SglangRequest, ...] = (),
    ) -> SglangLaunch:
        for request in prefill:
            row = _drafting(request)
            row.num_computed, row.in_mixed_step = row.extend_end, False
        return RowLaunch(
            mode,
            prefill,
            decode,
            chunked,
            drafts=[self._num_drafts] * len(decode),
            contexts=[_drafting(row).num_computed + 1 + self._num_drafts for row in decode],
            padding=[0] * len(prefill),
        )

    def _mix_in_decode(self, launch: SglangLaunch, in_flight: SglangLaunch | None) -> None:
        super()._mix_in_decode(launch, in_flight)
        if isinstance(launch, RowLaunch):
            # Rows of a mixed step decode one token each, without drafts.
            launch.drafts = [0] * len(launch.decode)
            launch.contexts = [_drafting(row).num_computed + 1 for row in launch.decode]

    # ---- results -------------------------------------------------------------------------------

    def prefill_computed(self, request: SglangRequest) -> None:
        super().prefill_computed(request)
        request.chunk_computed()

    def verified(
        self,
        request: SglangRequest,
        *,
        num_drafts: int,
        num_sampled: int,
        num_kept: int,
        num_proposed: int,
    ) -> None:
        row = _drafting(request)
        row.num_computed += num_sampled
        row.in_mixed_step = num_drafts == 0
        if num_drafts:
            self._kv.verified(row.kv, row.num_computed, num_sampled)

    @property
    def repeats(self) -> bool:
        return False


def _drafting(request: SglangRequest) -> SglangDraftRequest:
    if not isinstance(request, SglangDraftRequest):
        raise InvariantError(f"{request.rid} has no place for drafts")
    return request

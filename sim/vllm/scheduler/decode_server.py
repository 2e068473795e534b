"""The scheduler of a server that decodes what prefill servers have begun.

vLLM 0.33.0: `finish_requests`, `_handle_failed_recving`, `_update_from_kv_xfer_finished`
(v1/core/sched/scheduler.py).
"""

from collections.abc import Iterable, Sequence

from sim.core.request import RequestSpec, Status
from sim.engine.request import OutputTokens
from sim.engine.scheduler import Decision
from sim.vllm.cache.manager import BlockManager
from sim.vllm.cache.request_blocks import RequestBlocks
from sim.vllm.config import VllmConfig
from sim.vllm.request import VllmDecision, VllmLaunch, VllmRequest
from sim.vllm.scheduler.block_fences import BlockFences
from sim.vllm.scheduler.decode_admission import DecodeAdmission
from sim.vllm.scheduler.lockstep_scheduler import LockstepScheduler


class VllmDecodeScheduler(LockstepScheduler):
    """As the scheduler of any server, but for requests whose prompts others have computed."""

    def __init__(self, config: VllmConfig, *, kv: BlockManager) -> None:
        super().__init__(config, kv=kv)
        self.fills_places = config.rules.fills_batch_queue
        # Blocks of requests that have ended while their KV was on its way, by rid.
        self._orphans: dict[str, tuple[RequestBlocks, int]] = {}
        if config.async_scheduling and config.rules.fences_blocks:
            self._fences = BlockFences()

    def _build_admission(self) -> DecodeAdmission:
        self._loads = DecodeAdmission(
            self._config, kv=self._kv, waiting=self.waiting, catch_up=self._catch_up
        )
        return self._loads

    # ---- requests ------------------------------------------------------------------------------

    def new_request(self, spec: RequestSpec, limit: int, outputs: OutputTokens) -> VllmRequest:
        request = super().new_request(spec, limit, outputs)
        request.pulls = True
        return request

    def abort(self, request: VllmRequest, in_flight: Sequence[VllmLaunch]) -> bool:
        """It is gone at once; blocks that a transfer writes into stay until its end."""
        if request.status is not Status.WAITING:
            return super().abort(request, in_flight)
        if self._loads.forget(request):
            self._orphans[request.rid] = request.kv, request.seq_len
        elif request.kv.unhashed is not None:
            self._free_blocks(request)
        request.seq_len = 0
        return True

    def keeps_room(self, rid: str) -> bool:
        return rid in self._orphans

    def transfer_ended(self, rid: str, *, is_lost: bool) -> bool:
        orphan = self._orphans.pop(rid, None)
        if orphan is not None:
            self._kv.release(*orphan)
            self._loads.refused = None
            return False
        request = self._loads.loading.get(rid)
        if request is None:
            return False
        self._loads.ended[rid] = is_lost
        if is_lost and self._config.kv_load_failure_policy == "fail":
            return self.abort(request, ())
        return False

    # ---- the step ------------------------------------------------------------------------------

    def decide(self, now_ns: int, in_flight: VllmLaunch | None) -> VllmDecision:
        loads = self._loads
        is_rest = in_flight is None and len(loads.loading) == len(loads.ended)
        loads.is_last_chance = is_rest and not self._orphans
        decision = super().decide(now_ns, in_flight)
        if self._fences is not None and decision.launch is not None:
            self._fences.launched(decision.launch)
        started, self._loads.started = self._loads.started, []
        for request, num_cached in started:
            self.partner.room_made(request.rid, num_cached)
        return decision

    def begin_result(self) -> None:
        if self._fences is not None:
            for kv, num_tokens in self._fences.ended():
                self._kv.release(kv, num_tokens)
                self._loads.refused = None

    def _free_blocks(self, request: VllmRequest) -> None:
        if self._fences is not None and self._fences.is_in_flight(request):
            self._kv.detach(request.kv, request.seq_len)
            self._fences.hold(request.kv, request.seq_len)
        else:
            super()._free_blocks(request)

    def idle(self, now_ns: int, decision: Decision[VllmRequest]) -> int | None:
        if self._loads.loading or self._orphans:
            return None
        return super().idle(now_ns, decision)

    # ---- fast-forward --------------------------------------------------------------------------

    @property
    def _admits_nothing(self) -> bool:
        if self._loads.has_ready or (self._fences is not None and self._fences.held):
            return False
        return super()._admits_nothing

    # ---- state, for the engine and logs --------------------------------------------------------

    @property
    def num_waiting(self) -> int:
        return len(self.waiting) + len(self._loads.holding)

    @property
    def _num_left_waiting(self) -> int:
        return self.num_waiting - len(self._loads.deferred)

    def waiting_requests(self) -> Iterable[VllmRequest]:
        return [*self._loads.holding.all(), *self.waiting.all()]

    def blocks_of_ended(self) -> list[tuple[RequestBlocks, int]]:
        held = [] if self._fences is None else [each[1:] for each in self._fences.held]
        return [*self._orphans.values(), *held]

"""Admission of a server that is decided row by row: requests in flight, and padded rows.

With drafts, from 0.33.0 on, a request that lacks a single token when it is admitted is padded with
as many tokens as others have drafts. So all rows of the step have one length, and one CUDA graph
serves them. The padding is rejected.

vLLM 0.19.0 and 0.33.0: `Scheduler.schedule`, second loop (v1/core/sched/scheduler.py).
"""

from sim.vllm.cache.memory import BlockMemory, Chunk, Hit
from sim.vllm.config import VllmConfig
from sim.vllm.request import RowRequest
from sim.vllm.scheduler.admission import Admission
from sim.vllm.scheduler.running_pass import RunningPass
from sim.vllm.scheduler.step_limits import PromptLimits
from sim.vllm.scheduler.waiting_queue import WaitingQueue


class RowAdmission(Admission[RowRequest]):
    """Admits the waiting requests of one server.

    Attributes:
        deferred: waiting requests that were passed over since they were preempted.
    """

    def __init__(
        self, config: VllmConfig, *, memory: BlockMemory, waiting: WaitingQueue[RowRequest]
    ) -> None:
        super().__init__(config, memory=memory, waiting=waiting)
        self.deferred: set[RowRequest] = set()
        self._passed_over: list[RowRequest] = []
        self._may_pad = False
        self._beside_rows = False

    def run(
        self, running: list[RowRequest], steps: RunningPass[RowRequest], limits: PromptLimits
    ) -> list[RowRequest]:
        self._may_pad = self._config.rules.pads_new_rows and not steps.has_prefilled
        self._beside_rows = steps.has_rows
        admitted = super().run(running, steps, limits)
        for request in reversed(self._passed_over):
            self._waiting.put_back(request)
        self._passed_over = []
        return admitted

    def _is_held_back(self, request: RowRequest) -> bool:
        """Whether a waiting request was in a step in flight, before it was preempted.

        Versions up to 0.19.0 do not ask, and in pipelines of three or more stages could compute its
        token in flight twice. Here it waits for the token in their case, too, but not for a chunk.
        """
        if self._config.rules.passes_over_victims_in_flight:
            return request.num_in_flight > 0
        return request.num_samples > 0

    def _pass_over(self, request: RowRequest) -> bool:
        if not self._config.rules.passes_over_victims_in_flight:
            return False
        self._waiting.remove(request)
        self.deferred.add(request)
        self._passed_over.append(request)
        return True

    def _pad(self, request: RowRequest, prefix_len: int) -> int:
        request.padding = 0
        if request.num_tokens - prefix_len == 1 and (self._beside_rows or prefix_len):
            num_drafts = self._drafting.num_tokens
            if self._may_pad and prefix_len + num_drafts + 2 <= self._config.max_model_len:
                request.padding = num_drafts
        return request.padding

    def _place(self, request: RowRequest, hit: Hit, chunk: Chunk, end: int) -> None:
        self.deferred.discard(request)
        self._memory.place(request.kv, hit, chunk)
        self._memory.note_full(request.kv, end, request.num_tokens)

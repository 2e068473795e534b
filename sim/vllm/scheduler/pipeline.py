"""vLLM's scheduler for pipeline parallelism without async scheduling.

Source: vLLM 0.19.0, `EngineCore.step_with_batch_queue` in v1/engine/core.py: up to as many steps
are in flight as there are stages. The scheduler itself is the same: a decoding request whose token
is in flight has no new tokens to compute, so a step leaves it out (`num_new_tokens == 0` in
`schedule`). docs/explanation/pipeline.md has the rules.
"""

from collections.abc import Sequence

from sim.engine.running_batch import RunningBatch
from sim.vllm.cache.manager import BlockManager
from sim.vllm.config import VllmConfig
from sim.vllm.request import VllmBatch, VllmDecision, VllmLaunch, VllmRequest
from sim.vllm.scheduler.scheduler import VllmScheduler, keep_token


class VllmPipelineScheduler(VllmScheduler):
    """A scheduler with one running batch for each step that may be in flight.

    Requests in `admitted` are in the order of admission, whatever micro-batch they are in. A row
    that gets no token in a step may be in another micro-batch afterwards.
    """

    def __init__(self, config: VllmConfig, *, kv: BlockManager) -> None:
        super().__init__(config, kv=kv)
        self.fills_places = config.rules.fills_batch_queue
        others = [RunningBatch[VllmRequest](kv.page_size) for _ in range(1, config.micro_batches)]
        # Of each micro-batch. Those of the one in use are not current.
        self._batches: list[VllmBatch] = [self.running, *others]
        self._lasts: list[VllmLaunch | None] = [None] * config.micro_batches
        self._launches: Sequence[VllmLaunch] = ()
        self._number = 0

    def use_micro_batch(self, number: int, in_flight: Sequence[VllmLaunch]) -> None:
        self._lasts[self._number] = self._last
        self._number = number
        self.running, self._last = self._batches[number], self._lasts[number]
        self._launches = self._admission.launches = in_flight

    def decide(self, now_ns: int, in_flight: VllmLaunch | None) -> VllmDecision:
        """No row of this micro-batch is in flight: all their tokens are known.

        Blocks that it fills are noted at once. Later the manager could not tell when that was: it
        takes a row to have had a token at each decision, and others were for other micro-batches.
        """
        decision = super().decide(now_ns, None)
        size = self._kv.page_size
        for row in self.running.requests:
            num_tokens = row.seq_len
            if num_tokens % size == 0:
                self._kv.cache_full_blocks(row.kv, num_tokens)
        return decision

    def abort(self, request: VllmRequest, in_flight: VllmLaunch | None) -> bool:
        return super().abort(request, None)

    def _batch_of(self, row: VllmRequest) -> VllmBatch:
        return next(batch for batch in self._batches if row.lockstep is batch)

    def _keep_token_in_flight(self, victim: VllmRequest) -> None:
        for launch in self._launches:
            keep_token(victim, launch)

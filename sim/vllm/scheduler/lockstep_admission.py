"""Admission of a server in lockstep: a request that had no room is not looked up in every step."""

from collections.abc import Callable
from functools import partial

from sim.vllm.cache.manager import BlockManager
from sim.vllm.cache.memory import Chunk, Hit
from sim.vllm.config import VllmConfig
from sim.vllm.request import VllmRequest
from sim.vllm.scheduler.admission import Admission
from sim.vllm.scheduler.waiting_queue import WaitingQueue


class LockstepAdmission(Admission[VllmRequest]):
    """Admits the waiting requests of one server.

    Attributes:
        refused: a waiting request that has no room until a request frees blocks.
    """

    def __init__(
        self,
        config: VllmConfig,
        *,
        kv: BlockManager,
        waiting: WaitingQueue[VllmRequest],
        catch_up: Callable[[VllmRequest], None],
    ) -> None:
        """`catch_up` is called for a request when another one looks for blocks that it fills."""
        super().__init__(config, memory=kv, waiting=waiting)
        self.refused: VllmRequest | None = None
        self._kv = kv
        self._catch_up = catch_up

    def _is_held_back(self, request: VllmRequest) -> bool:
        return request is self.refused

    def _refuse(self, request: VllmRequest, hit: Hit) -> None:
        self.refused = request if self._stays_refused(request, hit.blocks[0]) else None

    def _place(self, request: VllmRequest, hit: Hit, chunk: Chunk, end: int) -> None:
        self.refused = None
        self._kv.admit(request.kv, hit.blocks[0], end, partial(self._catch_up, request))

    def _stays_refused(self, request: VllmRequest, found: list[int]) -> bool:
        """Whether a request for which there is no room has none before blocks are freed.

        Until then the running requests only take free blocks. So the request may find fewer blocks,
        and then needs as many more. It could find more only if a running request computed, or
        generated, what continues its prompt.

        If not the whole prompt has to fit, this holds for repeated decode steps alone, and only if
        it found no free blocks: with fewer of them it would need room for fewer tokens.
        """
        kv = self._kv
        if not self._config.scheduler_reserve_full_isl and kv.pool.num_free(found):
            return False
        return not kv.may_find_more(request.kv, len(found))

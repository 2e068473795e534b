"""Which blocks `lazy_offload` stores: those that are about to leave the GPU.

Each decision looks at the next free blocks, in the order in which they will be allocated, and goes
on where the one before has stopped. If the block where it stopped is in use again, it begins anew.

vLLM 0.33.0: `_prepare_lazy_store_specs` and `_estimate_lazy_target_blocks` of
`SimpleCPUOffloadScheduler` (v1/simple_kv_offload/manager.py).
"""

from collections.abc import Sequence
from typing import Final

from sim.vllm.cache.block_pool import BlockPool
from sim.vllm.cache.single_type_manager import MAMBA, WINDOW, KVCacheSpec
from sim.vllm.offload.host_blocks import HostBlocks
from sim.vllm.request import NULL

# If free blocks do not all fit into CPU memory, a server of vLLM's without requests copies them for
# ever, each into the place of others. A simulation ends that after this number of decisions.
_MOST_IDLE: Final = 3_000


def blocks_of_a_step(groups: Sequence[KVCacheSpec], most_tokens: int, block_size: int) -> int:
    """Blocks that a decision looks at: twice what a step of `most_tokens` tokens may allocate."""
    num_blocks = 0
    for group in groups:
        if group.kind == MAMBA:
            num_blocks += 2
        elif group.kind == WINDOW:
            num_blocks += -(-group.size // block_size) + 1
        else:
            num_blocks += -(-most_tokens // block_size)
    return 2 * num_blocks


class FreeBlockScan:
    """Goes over the free blocks on the GPU.

    Attributes:
        has_freed: a request has ended since the last decision.
        has_moved: the latest look has gone over some blocks, so another one may find more.
    """

    def __init__(self, pool: BlockPool, host: HostBlocks, most_blocks: int) -> None:
        """`most_blocks`: at which a decision looks."""
        self.has_freed = self.has_moved = False
        self._pool = pool
        self._host = host
        self._most_blocks = most_blocks
        self._latest = NULL
        self._has_requests = False
        # Decisions without requests in a row.
        self._num_idle = 0

    def begin_decision(self, *, has_requests: bool) -> None:
        """A decision begins; `has_requests`: the server has some."""
        self._has_requests = has_requests
        self._num_idle = 0 if has_requests else self._num_idle + 1

    def next_blocks(self, *, has_jobs: bool) -> list[int]:
        """The next blocks that CPU memory lacks, as many as it has room for.

        `has_jobs`: some copies have not ended.
        """
        looks = self._has_requests or self.has_freed or has_jobs
        self.has_freed = self.has_moved = False
        chosen: list[int] = []
        # A server of vLLM's without requests and copies does not decide.
        if not looks or self._num_idle > _MOST_IDLE:
            return chosen
        if self._latest != NULL and not self._pool.is_free(self._latest):
            self._latest = NULL
        most = self._host.num_free
        if not most:
            return chosen
        for block in self._pool.queued_behind(self._latest, self._most_blocks):
            self._latest, self.has_moved = block, True
            block_hash = self._pool.hash_at(block)
            if block_hash and not self._host.has(block_hash):
                chosen.append(block)
                if len(chosen) == most:
                    break
        return chosen

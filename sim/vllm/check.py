"""The invariants of vLLM's block pool (docs/explanation/invariants.md)."""

from collections import Counter
from collections.abc import Mapping
from typing import cast

from sim.core.errors import require
from sim.engine.core import EngineCore
from sim.vllm.cache.groups.memory import GroupedBlockManager
from sim.vllm.cache.manager import BlockManager
from sim.vllm.cache.pool import BlockPool
from sim.vllm.cache.request_blocks import RequestBlocks
from sim.vllm.check_groups import check_group_blocks
from sim.vllm.check_pool import check_users
from sim.vllm.request import VllmRequest
from sim.vllm.scheduler.scheduler import VllmScheduler


def check_vllm_memory(engine: EngineCore) -> None:
    """Verify the blocks of a server.

    Raises:
        InvariantError: an invariant is broken; the message names it.
    """
    requests = cast("Mapping[str, VllmRequest]", engine.requests)
    scheduler = cast("VllmScheduler", engine.scheduler)
    held = {f"ended {place}": each for place, each in enumerate(scheduler.blocks_of_ended())}
    if isinstance(engine.kv, GroupedBlockManager):
        held |= {rid: (request.kv, request.seq_len) for rid, request in requests.items()}
        check_group_blocks(engine.kv, held)
        return
    manager = cast("BlockManager", engine.kv)
    if scheduler.lockstep is None:
        held = {rid: (kv, len(kv.blocks) * manager.page_size) for rid, (kv, _) in held.items()}
    held |= {
        rid: (request.kv, _num_held(request, scheduler, manager.page_size))
        for rid, request in requests.items()
    }
    check_blocks(manager, held)


def _num_held(request: VllmRequest, scheduler: VllmScheduler, page_size: int) -> int:
    """Tokens that a request has blocks for; places for draft tokens are not taken back."""
    if scheduler.lockstep is not None:
        return request.seq_len
    num_held = len(request.kv.blocks) * page_size
    require(request.seq_len <= num_held, f"{request.rid} has fewer blocks than it needs")
    return num_held


def check_blocks(manager: BlockManager, requests: Mapping[str, tuple[RequestBlocks, int]]) -> None:
    """Verify that every block is free, promised, or in the table of a request.

    Args:
        manager: the blocks.
        requests: by rid, each request's blocks and the number of tokens they are for.

    Raises:
        InvariantError: an invariant is broken; the message names it.
    """
    num_users: Counter[int] = Counter()
    num_due = 0
    for rid, (kv, seq_len) in requests.items():
        num_users.update(kv.blocks)
        num_due += manager.num_missing(kv, seq_len)
        require(manager.num_missing(kv, seq_len) >= 0, f"{rid} has more blocks than it needs")
        _check_hashes(manager.pool, rid, kv)
    num_promised = manager.num_promised_pages
    require(
        num_due == num_promised,
        f"requests need {num_due} promised blocks, but {num_promised} are promised",
    )
    check_users(manager.pool, num_users, num_promised)


def _check_hashes(pool: BlockPool, rid: str, kv: RequestBlocks) -> None:
    """The first `num_hashed` blocks have the hashes of the request's tokens; others have none."""
    if kv.unhashed is None:
        require(not kv.blocks, f"{rid} has blocks although it was not admitted")
        return
    num_hashed = kv.unhashed.num_hashed
    hashes = [pool.hash_of.get(block) for block in kv.blocks]
    require(hashes[:num_hashed] == kv.hashes[:num_hashed], f"{rid}: a block has a wrong hash")
    require(not any(hashes[num_hashed:]), f"{rid}: more blocks have hashes than are counted")

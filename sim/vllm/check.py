"""The invariants of vLLM's block pool (docs/explanation/invariants.md)."""

from collections import Counter
from collections.abc import Mapping
from typing import cast

from sim.core.errors import require
from sim.engine.core import EngineCore
from sim.vllm.cache.manager import BlockManager
from sim.vllm.cache.pool import BlockPool
from sim.vllm.cache.request_blocks import RequestBlocks
from sim.vllm.request import VllmRequest


def check_vllm_memory(engine: EngineCore) -> None:
    """Verify the blocks of a server.

    Raises:
        InvariantError: naming what does not hold.
    """
    requests = cast("Mapping[str, VllmRequest]", engine.requests)
    held = {rid: (request.kv, request.seq_len) for rid, request in requests.items()}
    check_blocks(cast("BlockManager", engine.kv), held)


def check_blocks(manager: BlockManager, requests: Mapping[str, tuple[RequestBlocks, int]]) -> None:
    """Every block is free, promised, or used by the requests whose tables name it.

    Args:
        manager: the blocks.
        requests: each request's share and the tokens it has blocks for, by rid.

    Raises:
        InvariantError: naming what does not hold.
    """
    num_users: Counter[int] = Counter()
    num_due = 0
    for rid, (kv, seq_len) in requests.items():
        num_users.update(kv.blocks)
        num_due += manager.num_missing(kv, seq_len)
        require(manager.num_missing(kv, seq_len) >= 0, f"{rid} holds blocks it has no tokens for")
        _check_names(manager.pool, rid, kv)
    require(num_due == manager.num_promised_pages, f"{num_due} blocks due, others promised")
    _check_users(manager.pool, num_users)
    num_free = len(manager.pool.free_blocks())
    total = num_free + len(num_users) + num_due
    require(
        total == manager.pool.num_blocks,
        f"{num_free} free + {len(num_users)} used + {num_due} promised blocks are {total},"
        f" not {manager.pool.num_blocks}",
    )


def _check_names(pool: BlockPool, rid: str, kv: RequestBlocks) -> None:
    """The first blocks of a table are named by its tokens, and no others."""
    if kv.unnamed is None:
        require(not kv.blocks, f"{rid} holds blocks that nobody can find")
        return
    num_named = kv.unnamed.num_named
    names = [pool.hash_of.get(block) for block in kv.blocks]
    require(names[:num_named] == kv.hashes[:num_named], f"{rid}: blocks misnamed")
    require(not any(names[num_named:]), f"{rid}: blocks named that are not known to be")


def _check_users(pool: BlockPool, num_users: Counter[int]) -> None:
    """Each used block has as many users as tables name it; free ones have none."""
    free = pool.free_blocks()
    require(len(free) == pool.num_free_blocks, "free blocks are miscounted")
    require(len(set(free)) == len(free), "a block is free twice")
    require(not any(num_users[block] for block in free), "a free block is in use")
    others = {block: count - 1 for block, count in num_users.items() if count > 1}
    require(others == pool.other_users, "users are miscounted")
    unused = {block for block in free if block in pool.hash_of}
    require(unused == pool.unused, "named blocks that nobody uses are miscounted")
    require(pool.num_named_blocks == len(pool.hash_of), "named blocks are miscounted")
    require(pool.hash_of.keys() <= unused | num_users.keys(), "a promised block has a name")

"""The invariants of vLLM's block pool (docs/invariants.md)."""

from collections import Counter
from collections.abc import Mapping

from sim.core.errors import InvariantError
from sim.sglang.cache.request_kv import RequestKV
from sim.vllm.cache.manager import BlockManager
from sim.vllm.cache.pool import BlockPool
from sim.vllm.cache.request_blocks import RequestBlocks


def check_blocks(manager: BlockManager, requests: Mapping[str, tuple[RequestKV, int]]) -> None:
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
        if not isinstance(kv, RequestBlocks):
            raise InvariantError(f"{rid} has no block table")
        num_users.update(kv.blocks)
        num_due += manager.num_missing(kv, seq_len)
        _require(manager.num_missing(kv, seq_len) >= 0, f"{rid} holds blocks it has no tokens for")
        _check_names(manager.pool, rid, kv)
    _require(num_due == manager.num_promised_pages, f"{num_due} blocks due, others promised")
    _check_users(manager.pool, num_users)
    num_free = len(manager.pool.free_blocks())
    total = num_free + len(num_users) + num_due
    _require(
        total == manager.pool.num_blocks,
        f"{num_free} free + {len(num_users)} used + {num_due} promised blocks are {total},"
        f" not {manager.pool.num_blocks}",
    )


def _check_names(pool: BlockPool, rid: str, kv: RequestBlocks) -> None:
    """The first blocks of a table are named by its tokens, and no others."""
    if kv.unnamed is None:
        _require(not kv.blocks, f"{rid} holds blocks that nobody can find")
        return
    num_named = kv.unnamed.num_named
    names = [pool.hash_of.get(block) for block in kv.blocks]
    _require(names[:num_named] == kv.hashes[:num_named], f"{rid}: blocks misnamed")
    _require(not any(names[num_named:]), f"{rid}: blocks named that are not known to be")


def _check_users(pool: BlockPool, num_users: Counter[int]) -> None:
    """Each used block has as many users as tables name it; free ones have none."""
    free = pool.free_blocks()
    _require(len(free) == pool.num_free_blocks, "free blocks are miscounted")
    _require(len(set(free)) == len(free), "a block is free twice")
    _require(not any(num_users[block] for block in free), "a free block is in use")
    others = {block: count - 1 for block, count in num_users.items() if count > 1}
    _require(others == pool.other_users, "users are miscounted")
    unused = {block for block in free if block in pool.hash_of}
    _require(unused == pool.unused, "named blocks that nobody uses are miscounted")
    _require(pool.num_named_blocks == len(pool.hash_of), "named blocks are miscounted")
    _require(pool.hash_of.keys() <= unused | num_users.keys(), "a promised block has a name")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise InvariantError(what)

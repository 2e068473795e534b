"""The invariants of vLLM's block pool (docs/invariants.md)."""

from collections import Counter
from collections.abc import Mapping

from sim.core.errors import InvariantError
from sim.kvcache.block_manager import BlockManager
from sim.kvcache.request_blocks import RequestBlocks
from sim.kvcache.request_kv import RequestKV


def check_blocks(manager: BlockManager, requests: Mapping[str, tuple[RequestKV, int]]) -> None:
    """Every block is free, promised, or used by the requests whose tables name it.

    Args:
        manager: the blocks.
        requests: each request's share and the tokens it has blocks for, by rid.

    Raises:
        InvariantError: naming what does not hold.
    """
    pool = manager.pool
    num_users: Counter[int] = Counter()
    num_due = 0
    for rid, (kv, seq_len) in requests.items():
        if not isinstance(kv, RequestBlocks):
            raise InvariantError(f"{rid} has no block table")
        num_users.update(kv.blocks)
        num_due += manager.num_missing(kv, seq_len)
        _require(manager.num_missing(kv, seq_len) >= 0, f"{rid} holds blocks it has no tokens for")
        cached = kv.blocks[: kv.num_cached_blocks]
        named = kv.hashes(len(cached), manager.page_size)[: len(cached)]
        _require([pool.hash_of[block] for block in cached] == named, f"{rid}: blocks misnamed")
    _require(num_due == manager.num_promised_pages, f"{num_due} blocks due, others promised")
    free = pool.free_blocks()
    _require(
        not any(pool.num_users[block] or num_users[block] for block in free),
        "a free block is in use",
    )
    used = [block for block in range(pool.num_blocks) if num_users[block]]
    _require(
        all(pool.num_users[block] == num_users[block] for block in used), "users are miscounted"
    )
    total = len(free) + len(used) + num_due
    _require(
        total == pool.num_blocks,
        f"{len(free)} free + {len(used)} used + {num_due} promised blocks are {total},"
        f" not {pool.num_blocks}",
    )
    num_named = sum(1 for content in pool.hash_of if content)
    _require(num_named == pool.num_cached_blocks, "cached blocks are miscounted")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise InvariantError(what)

"""The invariants of vLLM's block pool (docs/explanation/invariants.md)."""

from collections import Counter
from collections.abc import Mapping
from typing import cast

from sim.core.errors import require
from sim.engine.core import EngineCore
from sim.vllm.cache.block_pool import BlockPool
from sim.vllm.cache.full_attention import SingleTypeManager
from sim.vllm.cache.grouped import GroupedBlockManager
from sim.vllm.cache.manager import BlockManager
from sim.vllm.cache.request_blocks import NULL, Chunk, GroupTable, RequestBlocks
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


def check_group_blocks(
    memory: GroupedBlockManager, requests: Mapping[str, tuple[RequestBlocks, int]]
) -> None:
    """Verify that every block is free or in a table, and that tables lack none that are needed.

    Args:
        memory: the blocks.
        requests: by rid, each request's tables and the number of tokens they are for.

    Raises:
        InvariantError: an invariant is broken; the message names it.
    """
    num_users: Counter[int] = Counter()
    for rid, (kv, seq_len) in requests.items():
        if kv.tables is None:
            require(not seq_len, f"{rid} has tokens in KV, but no blocks")
            continue
        for manager, table in zip(memory.managers, kv.tables.of_groups, strict=True):
            num_users.update([block for block in table.blocks if block != NULL])
            require(
                not manager.num_missing(table, Chunk(seq_len, seq_len, 1 << 62)),
                f"{rid} has fewer blocks than it needs",
            )
            _check_table(memory, manager, table, rid, kv)
            require(
                NULL not in table.blocks[manager.num_skipped(seq_len) :] or manager.leaves_gaps,
                f"{rid} lacks a block that its next token attends to",
            )
    check_users(memory.pool, num_users)


def _check_table(
    memory: GroupedBlockManager,
    manager: SingleTypeManager,
    table: GroupTable,
    rid: str,
    kv: RequestBlocks,
) -> None:
    """A block of the table has the hash of the request's tokens, or none."""
    for block, expected in zip(table.blocks, kv.hashes, strict=False):
        found = memory.pool.hash_of.get(block, expected ^ manager.salt)
        require(found == expected ^ manager.salt, f"{rid}: a block has a wrong hash")
    for block in table.blocks[len(kv.hashes) :]:
        require(block not in memory.pool.hash_of, f"{rid}: a block has a hash too early")


def check_users(pool: BlockPool, num_users: Counter[int], num_promised: int = 0) -> None:
    """Every block is free, promised, or in as many tables as it has users.

    Args:
        pool: the blocks.
        num_users: for each block, the number of tables that it is in.
        num_promised: blocks that are promised to decode steps.
    """
    free = pool.free_blocks()
    require(len(free) == pool.num_free_blocks, "the count of free blocks is wrong")
    require(len(set(free)) == len(free), "a block is free twice")
    require(not any(num_users[block] for block in free), "a free block is in use")
    extra = {block: count - 1 for block, count in num_users.items() if count > 1}
    require(extra == pool.extra_users, "the count of a block's users is wrong")
    free_hashed = {block for block in free if block in pool.hash_of}
    require(free_hashed == pool.free_hashed, "the set of free blocks with hashes is wrong")
    require(pool.num_hashed_blocks == len(pool.hash_of), "the count of blocks with hashes is wrong")
    require(pool.hash_of.keys() <= free_hashed | num_users.keys(), "a promised block has a hash")
    total = len(free) + len(num_users) + num_promised
    require(
        total == pool.num_blocks,
        f"{len(free)} free + {len(num_users)} used + {num_promised} promised blocks are {total},"
        f" not {pool.num_blocks}",
    )

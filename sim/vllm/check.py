"""The invariants of vLLM's block pool (docs/explanation/invariants.md)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np

from sim.core.errors import require
from sim.engine.core import EngineCore
from sim.installed.scheduler import EngineScheduler
from sim.vllm.cache.block_pool import BlockPool
from sim.vllm.cache.kv_cache_coordinator import KVCacheCoordinator
from sim.vllm.cache.single_type_manager import SingleTypeManager
from sim.vllm.cache.sliding_window import ChunkedLocalAttentionManager
from sim.vllm.offload.connector import OffloadConnector
from sim.vllm.request import NULL, BlockTable, Chunk, RequestBlocks, VllmRequest, block_ids
from sim.vllm.scheduler.scheduler import VllmScheduler


def check_vllm_memory(engine: EngineCore) -> None:
    """Verify the blocks of a server.

    Raises InvariantError: an invariant is broken; the message names it.
    """
    if isinstance(engine.scheduler, EngineScheduler):
        engine.scheduler.check()
        return
    requests = cast("Mapping[str, VllmRequest]", engine.requests)
    scheduler = cast("VllmScheduler", engine.scheduler)
    held = {
        f"ended {place}": each for place, each in enumerate(scheduler.connector.blocks_of_ended())
    }
    held |= {rid: (request.kv, request.seq_len) for rid, request in requests.items()}
    memory = cast("KVCacheCoordinator", engine.kv)
    copied, in_lockstep = scheduler.connector.copied_blocks(), scheduler.lockstep is not None
    check_blocks(memory, held, in_lockstep=in_lockstep, copied=copied)
    if isinstance(scheduler.connector, OffloadConnector):
        check_offloaded(scheduler.connector)


def check_offloaded(connector: OffloadConnector) -> None:
    """Verify the chunks in CPU memory.

    Raises InvariantError: an invariant is broken; the message names it.
    """
    host, jobs = connector.host, connector.jobs()
    tiers = () if host.below is None else host.below.tiers
    below = [job for tier in tiers for job in tier.jobs]
    promoted = [keys for tier in tiers for keys in tier.promoted.values()]
    require(len(host) <= host.num_chunks, "there are more chunks in CPU memory than fit")
    chunks = host.chunks()
    require(len(chunks) == len(host), "the count of chunks in CPU memory is wrong")
    num_idle = sum(chunk.is_idle for chunk in chunks)
    require(num_idle == host.num_idle, "the count of chunks that may leave CPU memory is wrong")
    written = [key for job in jobs if job.is_store for key in job.keys]
    written += [key for each in below if each.is_load for key in each.keys]
    written += [key for keys in promoted for key in keys]
    require(len(set(written)) == len(written), "a chunk is written twice")
    num_written = sum(not chunk.is_ready for chunk in chunks)
    require(num_written == len(written), "the count of chunks that are written is wrong")
    read = Counter(key for job in jobs if not job.is_store for key in job.keys)
    read.update(key for each in below if not each.is_load for key in each.keys)
    for key, num_loads in read.items():
        chunk = host.find(key)
        found = None if chunk is None else chunk.num_loads
        require(found == num_loads, "the count of copies that read a chunk is wrong")
    num_read = sum(chunk.num_loads for chunk in chunks if chunk.is_ready)
    require(num_read == read.total(), "a chunk is kept for a copy that does not read it")
    for tier in tiers:
        require(tier.is_within_bounds, "the tier below CPU memory has more chunks than fit")


def check_blocks(
    memory: KVCacheCoordinator,
    requests: Mapping[str, tuple[RequestBlocks, int]],
    *,
    in_lockstep: bool,
    copied: Iterable[int] = (),
) -> None:
    """Verify that every block is free, reserved or in a table, and that tables lack none.

    `requests` has by rid each request's blocks and the number of tokens they are for.
    `in_lockstep`: no request has more blocks than it needs. Places for draft tokens, which other
    servers have, are not taken back. `copied`: blocks that copies use besides.

    Raises InvariantError: an invariant is broken; the message names it.
    """
    num_users: Counter[int] = Counter(copied)
    num_due, size = 0, memory.page_size
    for rid, (kv, seq_len) in requests.items():
        require(bool(kv.tables) or not seq_len, f"{rid} has tokens in KV, but no blocks")
        for manager, table in zip(memory.managers, kv.tables, strict=False):
            blocks = table.blocks_from(0)
            num_users.update([block for block in blocks if block != NULL])
            num_due += manager.num_blocks_to_allocate(table, Chunk(seq_len, seq_len, 1 << 62))
            _check_hashes(memory.pool, manager, table, rid, kv)
            require(
                NULL not in blocks[manager.num_skipped(seq_len) :] or _may_lack(manager, size),
                f"{rid} lacks a block that its next token attends to",
            )
            num_needed = -(-seq_len // size)
            has_more = in_lockstep and len(blocks) > num_needed
            require(not has_more, f"{rid} has more blocks than it needs")
    num_reserved = memory.num_reserved_blocks
    require(
        num_due == num_reserved, f"requests lack {num_due} blocks, but {num_reserved} are reserved"
    )
    _check_users(memory.pool, num_users, num_reserved)


def _may_lack(manager: SingleTypeManager[Any], block_size: int) -> bool:
    """Whether a request may lack blocks that its next token attends to.

    vLLM looks up the chunk of a prompt's end. If it finds nothing of it, the hit ends with the last
    whole block before this chunk: where chunks do not end with blocks, inside the chunk before,
    whose blocks it did not look for (`find_longest_cache_hit` of `ChunkedLocalAttentionManager`).
    """
    in_chunks = isinstance(manager, ChunkedLocalAttentionManager)
    return manager.leaves_gaps or (in_chunks and manager.spec.size % block_size != 0)


def _check_hashes(
    pool: BlockPool,
    manager: SingleTypeManager[Any],
    table: BlockTable,
    rid: str,
    kv: RequestBlocks,
) -> None:
    """A block of the table has the hash of the request's tokens, or none.

    A state that was written inside a chunk may stand one place behind the tokens before it; see
    `Checkpoint` of sim.vllm.cache.single_type_manager.
    """
    before: int | None = None
    blocks = table.blocks_from(0)
    for block, expected in zip(blocks, kv.hashes.values.tolist(), strict=False):
        found = (pool.hash_at(block) or expected ^ manager.salt) ^ manager.salt
        is_checkpoint = manager.spec.checkpoint_alignment > 0 and found == before
        require(found == expected or is_checkpoint, f"{rid}: a block has a wrong hash")
        before = expected
    for block in blocks[len(kv.hashes) :]:
        require(not pool.hash_at(block), f"{rid}: a block has a hash too early")


def _check_users(pool: BlockPool, num_users: Counter[int], num_reserved: int) -> None:
    """Every block is free, reserved, or in as many tables as it has users.

    `num_users` is for each block the number of tables that it is in; `num_reserved` blocks are
    reserved for decode steps.
    """
    free = pool.queued_blocks()
    require(len(free) == pool.num_free_blocks, "the count of free blocks is wrong")
    free_set = set(free)
    require(len(free_set) == len(free), "a block is free twice")
    require(num_users.keys().isdisjoint(free_set), "a free block is in use")
    num_extra: list[int] = pool.extra_users.tolist()
    for block, num_more in enumerate(num_extra):
        require(num_more == max(num_users[block] - 1, 0), "the count of a block's users is wrong")
    hashed = set(np.flatnonzero(pool.hash_of).tolist())
    for block in hashed:
        is_free = pool.num_free(block_ids([block])) > 0
        require(is_free == (block in free_set), "what is known of a free block is wrong")
    require(pool.num_hashed_blocks == len(hashed), "the count of blocks with hashes is wrong")
    require(hashed <= free_set | num_users.keys(), "a reserved block has a hash")
    total = len(free) + len(num_users) + num_reserved
    require(
        total == pool.num_blocks,
        f"{len(free)} free + {len(num_users)} used + {num_reserved} reserved blocks are {total},"
        f" not {pool.num_blocks}",
    )

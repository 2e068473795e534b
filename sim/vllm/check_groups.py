"""The invariants of vLLM's block pool with groups of layers (docs/explanation/invariants.md)."""

from collections import Counter
from collections.abc import Mapping

from sim.core.errors import require
from sim.vllm.cache.groups.managers import GroupManager
from sim.vllm.cache.groups.memory import GroupedBlockManager
from sim.vllm.cache.groups.tables import NULL, GroupTable
from sim.vllm.cache.memory import Chunk
from sim.vllm.cache.request_blocks import RequestBlocks
from sim.vllm.check_pool import check_users


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
    manager: GroupManager,
    table: GroupTable,
    rid: str,
    kv: RequestBlocks,
) -> None:
    """A block of the table has the hash of the request's tokens, or none.

    A state that was written inside a chunk may stand one place behind the tokens before it; see
    `Checkpoint` of sim.vllm.cache.groups.checkpoints.
    """
    is_behind = manager.drops_last and manager.group.checkpoint_alignment > 0
    before: int | None = None
    for block, expected in zip(table.blocks, kv.hashes, strict=False):
        found = memory.pool.hash_of.get(block, expected ^ manager.salt) ^ manager.salt
        require(
            found == expected or (is_behind and found == before),
            f"{rid}: a block has a wrong hash",
        )
        before = expected
    for block in table.blocks[len(kv.hashes) :]:
        require(block not in memory.pool.hash_of, f"{rid}: a block has a hash too early")

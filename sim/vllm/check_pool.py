"""What holds of the users of vLLM's blocks, with groups of layers and without."""

from collections import Counter

from sim.core.errors import require
from sim.vllm.cache.pool import BlockPool


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

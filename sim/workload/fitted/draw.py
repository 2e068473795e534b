"""Draws requests that share prompts as the statistics of a trace say."""

from collections.abc import Sequence

import numpy as np

from sim.core.arrays import Float64, Int64
from sim.core.errors import InputError
from sim.core.units import MAX_TIME_NS, NS_PER_S
from sim.workload import MAX_TOKENS
from sim.workload.config import FittedConfig
from sim.workload.fitted.statistics import Cell, TrafficStatistics, read_statistics
from sim.workload.kinds.context import BuildContext
from sim.workload.prompts import BlockPrompts
from sim.workload.workload import LazySequence, Workload, open_loop

# Columns of a draw.
_SHARED, _RUN_SHARE, _PAUSE_S, _NEW, _OUTPUT = range(5)
# How much a wrong length of the shared prefix weighs against a wrong pause, when the request to
# share it with is chosen.
_LENGTH_WEIGHT = 2.0
# Added to pauses before their logarithms are compared: pauses far below it count as equal.
_TICK_S = 1.0
# The most earlier requests among which the one to share a prefix with is looked for.
_MAX_EARLIER = 20_000
# Limit on the blocks of all prompts; each takes 16 bytes of memory.
_MAX_BLOCKS = 1 << 28


def build_fitted(config: FittedConfig, context: BuildContext) -> Workload:
    """Draw the requests.

    Raises:
        InputError: the file of statistics is bad, or the last request comes too late.
    """
    statistics = read_statistics(context.base_dir / config.path)
    rng = context.random.stream("fitted")
    num = config.num_requests or statistics.num_requests
    gaps_s = _spread(statistics.gaps_s, num, rng)
    arrival_s = np.cumsum(gaps_s) - gaps_s[0]
    if arrival_s[-1] * config.time_scale * NS_PER_S > MAX_TIME_NS:
        reason = "moves the last arrival out of the clock's range"
        raise InputError(reason, key=(*context.key, "time_scale"))
    drawn = _drawn(statistics, arrival_s, rng)
    size = statistics.block_size
    wanted = np.rint(drawn[_SHARED]).astype(np.int64)
    num_tokens = np.maximum(1, wanted * size + np.rint(drawn[_NEW]).astype(np.int64))
    _require_few(num_tokens, size, context)
    block_ids, offsets = _shared_blocks(
        wanted, drawn[_RUN_SHARE], num_tokens // size, arrival_s, drawn[_PAUSE_S]
    )
    prompts = _prompts(block_ids, offsets, num_tokens, size)
    if context.mixed:
        renamed = context.streams.rename_blocks(prompts.block_ids)
        prompts = BlockPrompts(renamed, prompts.offsets, num_tokens, size)
    table = context.generated_table(
        config,
        rids=LazySequence(num, str),
        prompts=prompts,
        output_tokens=np.maximum(1, np.rint(drawn[_OUTPUT]).astype(np.int64)),
        output_seed=context.streams.take(num),
    )
    return open_loop(table, np.rint(arrival_s * config.time_scale * NS_PER_S).astype(np.int64))


def _require_few(num_tokens: Int64, size: int, context: BuildContext) -> None:
    """Raise InputError if one prompt is too long, or if all together have too many blocks."""
    longest, num_blocks = int(num_tokens.max()), int((num_tokens // size).sum())
    if longest > MAX_TOKENS:
        raise InputError(f"a prompt has {longest} tokens, above {MAX_TOKENS}", key=context.key)
    if num_blocks > _MAX_BLOCKS:
        reason = f"drew {num_blocks:,} blocks in all, above {_MAX_BLOCKS:,}"
        raise InputError(reason, key=(*context.key, "num_requests"))


def _drawn(statistics: TrafficStatistics, arrival_s: Float64, rng: np.random.Generator) -> Float64:
    """The columns of each request, shape [5, num_requests]."""
    cells, num = statistics.cells, len(arrival_s)
    drawn = _draws_of(cells, [cell.share for cell in cells], num, rng)
    # A request whose pause reaches back before the first arrival has no prompt to share. It is
    # drawn again from the cells of requests that begin something new.
    fresh_shares = [cell.share * cell.is_fresh for cell in cells]
    is_old = drawn[_PAUSE_S] > arrival_s + _TICK_S
    if any(fresh_shares):
        drawn[:, is_old] = _draws_of(cells, fresh_shares, int(is_old.sum()), rng)
    return drawn


def _draws_of(
    cells: Sequence[Cell], shares: Sequence[float], num: int, rng: np.random.Generator
) -> Float64:
    """`num` requests, shape [5, num], in any order.

    The number of each cell's requests is its share of `num`, rounded: it is not left to chance.
    """
    ends = np.rint(np.cumsum(shares) / sum(shares) * num).astype(np.int64)
    counts = np.diff(ends, prepend=0)
    parts = []
    for cell, count in zip(cells, counts.tolist(), strict=True):
        columns = (
            cell.shared_blocks, cell.run_share, cell.pause_s, cell.new_tokens, cell.output_tokens,
        )  # fmt: skip
        parts.append(np.array([_spread(levels, count, rng) for levels in columns]))
    drawn: Float64 = np.concatenate(parts, axis=1)
    return drawn[:, rng.permutation(num)]


def _spread(levels: Sequence[float], num: int, rng: np.random.Generator) -> Float64:
    """`num` values in any order, equally many around each of these levels.

    The values of a level are uniform between the midpoints to its neighbours. Those of the highest
    level are exponential, from the midpoint below it upwards. Then all are scaled to the mean of
    the levels.
    """
    means = np.sort(levels)
    edges = (means[1:] + means[:-1]) / 2
    level = (np.arange(num) + rng.random()) * len(means) / max(1, num)
    level = np.minimum(level.astype(np.int64), len(means) - 1)
    low = np.concatenate((means[:1], edges))[level]
    high = np.append(edges, means[-1])[level]
    values = low + rng.random(num) * (high - low)
    if len(means) > 1:
        top = level == len(means) - 1
        reach = max(0.0, means[-1] - edges[-1])
        values[top] = edges[-1] + rng.exponential(reach, int(top.sum()))
    values *= means.mean() / (values.mean() or 1.0) if num else 1.0
    return rng.permutation(values)


def _shared_blocks(
    wanted: Int64, run_share: Float64, num_blocks: Int64, arrival_s: Float64, pause_s: Float64
) -> tuple[Int64, Int64]:
    """Ids of the full blocks of all prompts, and where each prompt's begin.

    Each request shares its first blocks with an earlier request, the one that differs least from
    what was drawn: it came `pause_s` ago, has `wanted` blocks, and `run_share` of these were used
    by no request after it.
    """
    num = len(wanted)
    offsets = np.concatenate(([0], np.cumsum(num_blocks)))
    block_ids = np.arange(offsets[-1])
    last_user = np.repeat(np.arange(num), num_blocks)
    # How many of each request's first blocks a later request has used again.
    retaken = np.zeros(num, dtype=np.int64)
    for row in range(1, num):
        if not wanted[row]:
            continue
        first = max(0, row - _MAX_EARLIER)
        shared = np.minimum(wanted[row], num_blocks[first:row])
        age_s = arrival_s[row] - arrival_s[first:row]
        costs = np.abs(np.log((age_s + _TICK_S) / (pause_s[row] + _TICK_S)))
        costs -= _LENGTH_WEIGHT * np.log(np.maximum(shared, 0.1) / wanted[row])
        runs = shared - retaken[first:row]
        costs += _LENGTH_WEIGHT * np.abs(runs / np.maximum(1, shared) - run_share[row])
        costs[runs <= 0] = np.inf
        best = int(np.argmin(costs))
        if costs[best] == np.inf:
            continue
        source, length = first + best, min(int(shared[best]), int(num_blocks[row]))
        ids = block_ids[offsets[source] : offsets[source] + length]
        # Those who used these blocks last have lost all up to where their part of them ends.
        users = last_user[ids]
        ends = np.flatnonzero(np.diff(users, append=-1))
        np.maximum.at(retaken, users[ends], ends + 1)
        last_user[ids] = row
        block_ids[offsets[row] : offsets[row] + length] = ids
    return block_ids, offsets


def _prompts(block_ids: Int64, offsets: Int64, num_tokens: Int64, size: int) -> BlockPrompts:
    """The prompts: a prompt whose last block is not full gets a block of its own for it."""
    is_partial = num_tokens % size > 0
    places = offsets[1:][is_partial]
    ids = np.insert(block_ids, places, offsets[-1] + np.arange(len(places)))
    ends = np.concatenate(([0], np.cumsum(is_partial))) + offsets
    return BlockPrompts(ids, ends, num_tokens, size)

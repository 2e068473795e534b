"""Statistics of a workload, and the hit rate of a cache that never evicts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.tokens import ArrayPrompt, BlockPrompt, SegmentPrompt
from sim.workload.kinds.stats import workload_stats
from sim.workload.reuse.infinite_cache import InfiniteCache


def mooncake(*rows):
    keys = ("timestamp", "input_length", "output_length", "hash_ids")
    return [dict(zip(keys, row, strict=True)) for row in rows]


def test_stats_of_a_small_trace_by_hand(trace):
    """Gaps of 1 s and 3 s: mean 2, deviation 1. Of 6 blocks the third row finds two."""
    rows = mooncake((0, 1000, 10, [1, 2]), (1000, 512, 20, [3]), (4000, 1100, 60, [1, 2, 4]))
    stats = workload_stats(trace("mooncake", rows))
    assert (stats.num_requests, stats.num_clients, stats.block_size) == (3, 0, 512)
    assert (stats.span_s, stats.rate_rps, stats.gap_cv) == (4.0, 0.75, 0.5)
    inputs, outputs = stats.input_tokens, stats.output_tokens
    assert (inputs.total, inputs.mean, inputs.p50, inputs.max) == (2612, 2612 / 3, 1000, 1100)
    assert (outputs.total, outputs.mean, outputs.p50, outputs.max) == (90, 30, 20, 60)
    assert (outputs.p90, outputs.p99) == (pytest.approx(52), pytest.approx(59.2))
    assert stats.block_hit_pct == pytest.approx(100 * 2 / 6)
    assert stats.token_hit_pct == pytest.approx(100 * 1024 / 2612)


def test_stats_count_the_unbroken_run_from_the_first_block_only(trace):
    """A block found after a miss does not count, though it is there."""
    rows = mooncake((0, 1536, 1, [1, 2, 3]), (0, 1536, 1, [9, 2, 3]), (0, 1536, 1, [1, 8, 3]))
    assert workload_stats(trace("mooncake", rows)).block_hit_pct == pytest.approx(100 / 9)


def test_stats_partial_last_block_counts_its_tokens_only(trace):
    """A repeated prompt of 513 tokens is found whole: two blocks, 513 tokens."""
    rows = mooncake((0, 513, 1, [1, 2]), (0, 513, 1, [1, 2]))
    stats = workload_stats(trace("mooncake", rows))
    assert (stats.block_hit_pct, stats.token_hit_pct) == (50.0, 50.0)


def test_stats_use_the_traces_own_block_size_unless_told_otherwise(trace):
    """Sixteen-token blocks in pairs, as blocks of 32."""
    rows = mooncake((0, 64, 1, [1, 2, 3, 4]), (0, 64, 1, [1, 2, 3, 5]))
    workload = trace("mooncake", rows, block_size=16)
    stats = workload_stats(workload)
    assert (stats.block_size, stats.block_hit_pct) == (16, pytest.approx(100 * 3 / 8))
    stats = workload_stats(workload, block_size=32)
    assert (stats.block_size, stats.block_hit_pct) == (32, pytest.approx(100 / 4))


def test_stats_of_segments_find_shared_prefixes(synthetic):
    """All share 1024 of 1124 tokens: two blocks of 512 of three, for all but the first."""
    stats = workload_stats(synthetic(num_requests=100, system_prompt_tokens=1024))
    assert stats.block_size == 512
    assert stats.block_hit_pct == pytest.approx(100 * 99 * 2 / 300)
    assert stats.token_hit_pct == pytest.approx(100 * 99 * 1024 / 112_400)


def test_stats_outputs_are_what_will_be_generated(trace):
    """Cut off by the limit, or run up to it where the end is ignored."""
    row = {"arrival": 0, "segments": [[1, 1]], "output_len": 10}
    rows = [row | {"max_new_tokens": 4}, row | {"max_new_tokens": 50, "ignore_eos": True}]
    stats = workload_stats(trace("servetwin", [*rows, row]))
    assert stats.output_tokens.total == 4 + 50 + 10


def test_stats_of_closed_loops_have_no_span(build):
    """When turns are sent depends on the server; sessions quote what was before."""
    section = {
        "kind": "sessions",
        "sessions": 3,
        "arrivals": {"kind": "constant", "rate_rps": 1},
        "turns": {"kind": "choice", "values": [1, 4]},
        "user_tokens": {"kind": "constant", "value": 512},
        "output_tokens": {"kind": "constant", "value": 513},
        "think_s": {"kind": "constant", "value": 1},
    }
    workload = build(section, seed=2)
    turns = [len(client) for client in workload.clients]
    stats = workload_stats(workload)
    assert (stats.num_clients, stats.num_requests) == (3, sum(turns))
    assert (stats.span_s, stats.rate_rps, stats.gap_cv) == (None, None, None)
    # Turn k has 2k + 1 blocks, of which it finds the 2k - 1 of the turn before it.
    blocks = sum(2 * k + 1 for n in turns for k in range(n))
    hits = sum(2 * k - 1 for n in turns for k in range(1, n))
    assert hits > 0
    assert stats.block_hit_pct == pytest.approx(100 * hits / blocks)


@pytest.mark.parametrize("num_requests", [1, 3])
def test_stats_of_arrivals_at_one_time_have_no_rate(synthetic, num_requests):
    """A rate over a span of 0 is undefined."""
    at_once = {"kind": "burst", "size": 5, "every_s": 1}
    stats = workload_stats(synthetic(num_requests=num_requests, arrivals=at_once))
    assert (stats.span_s, stats.rate_rps, stats.gap_cv) == (0.0, None, None)


SEGMENTS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), min_size=1, max_size=4)


@given(prompts=st.lists(SEGMENTS, min_size=1, max_size=8), size=st.integers(1, 6))
def test_infinite_cache_finds_the_same_in_segments_as_in_their_ids(prompts, size):
    """Comparing by name is a short cut, not another answer."""
    by_name, by_ids = InfiniteCache(size), InfiniteCache(size)
    for segments in prompts:
        prompt = SegmentPrompt(tuple(segments))
        by_name.add(prompt)
        by_ids.add(ArrayPrompt(prompt.token_ids()))
    assert by_name.hit_pcts() == by_ids.hit_pcts()


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    own_size=st.integers(1, 9),
    size=st.integers(1, 9),
    data=st.data(),
)
def test_infinite_cache_finds_the_same_in_blocks_as_in_their_ids(lengths, own_size, size, data):
    """Also where the cache's blocks are not the trace's."""
    by_name, by_ids = InfiniteCache(size), InfiniteCache(size)
    for length in lengths:
        num_blocks = -(-length // own_size)
        # Blocks of a trace are compared by id alone, so an id must not stand for two contents.
        num_tokens = num_blocks * own_size if size == own_size else length
        ids = data.draw(st.lists(st.integers(0, 1), min_size=num_blocks, max_size=num_blocks))
        prompt = BlockPrompt(np.array(ids), own_size, num_tokens)
        by_name.add(prompt)
        by_ids.add(ArrayPrompt(prompt.token_ids()))
    assert by_name.hit_pcts() == pytest.approx(by_ids.hit_pcts())


def test_stats_of_a_benchmark_leave_its_warm_up_out(build):
    """Its requests wait for free places, so they have no rate."""
    section = {"kind": "bench", "client": "inferencex", "max_concurrency": 4, "num_prompts": 40}
    stats = workload_stats(build(section | {"input_len": 1024, "output_len": 1024}))
    assert (stats.num_requests, stats.num_clients, stats.rate_rps) == (40, 4, None)
    assert stats.token_hit_pct == 0

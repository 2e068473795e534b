"""Curves against a least-recently-used cache that is played block by block."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.batch import OutputScript
from sim.core.errors import InputError
from sim.core.request import RequestSpec
from sim.core.tokens import ArrayPrompt, BlockPrompt, SegmentPrompt
from sim.workload.reuse.blocks import in_time_order
from sim.workload.reuse.curve import hit_curve
from sim.workload.workload import ScriptedRequest, Turn, listed


def request(prompt, num_output=1, seed=900, rid="r", **keys):
    spec = RequestSpec(rid=rid, arrival_ns=0, prompt=prompt, max_new_tokens=num_output, **keys)
    return ScriptedRequest(spec, OutputScript(num_output, seed))


def played(requests, block_size, num_blocks):
    """Tokens found by a cache of `num_blocks` blocks, as a list of blocks, the last used first."""
    cache, found = [], 0
    for each in requests:
        num_output = each.spec.max_new_tokens
        answer = each.script.token_ids(num_output - 1)
        ids = [*each.spec.prompt.token_ids().tolist(), *answer.tolist()]
        chain = [tuple(ids[:end]) for end in range(block_size, len(ids) + 1, block_size)]
        for block in chain[: (len(each.spec.prompt) - 1) // block_size]:
            if block not in cache:
                break
            found += block_size
        for block in reversed(chain):
            if block in cache:
                cache.remove(block)
            cache.insert(0, block)
        del cache[num_blocks:]
    return found


def check(requests, block_size):
    curve = hit_curve(listed(requests), block_size)
    for num_blocks in range(curve.max_blocks + 3):
        found = played(requests, block_size, num_blocks)
        total = sum(len(each.spec.prompt) for each in requests)
        assert curve.hit_pct(num_blocks) == pytest.approx(100 * found / total)
    return curve


SEGMENTS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=4)
PROMPTS = st.lists(st.tuples(SEGMENTS, st.integers(1, 6)), min_size=1, max_size=14)


@given(prompts=PROMPTS, size=st.integers(1, 5))
def test_curve_of_segments_is_that_of_a_played_cache(prompts, size):
    """Answers are kept, too; one of seed 1 is found as the beginning of a prompt's stream 1."""
    requests = [
        request(SegmentPrompt(tuple(segments)), num_output, seed=1)
        for segments, num_output in prompts
    ]
    check(requests, size)


@given(prompts=PROMPTS, size=st.integers(1, 5), places=st.sets(st.integers(0, 13)))
def test_curve_is_the_same_where_some_prompts_are_given_by_ids(prompts, size, places):
    """Then all are compared by their tokens."""
    requests = []
    for place, (segments, num_output) in enumerate(prompts):
        prompt = SegmentPrompt(tuple(segments))
        if place in places:
            prompt = ArrayPrompt(prompt.token_ids())
        requests.append(request(prompt, num_output, seed=1))
    check(requests, size)


@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    own_size=st.integers(1, 6),
    size=st.integers(1, 6),
    data=st.data(),
)
def test_curve_of_a_traces_blocks_is_that_of_a_played_cache(lengths, own_size, size, data):
    """Also where the cache's blocks are not the trace's."""
    requests = []
    for number, length in enumerate(lengths):
        num_blocks = -(-length // own_size)
        ids = data.draw(st.lists(st.integers(0, 1), min_size=num_blocks, max_size=num_blocks))
        prompt = BlockPrompt(np.array(ids), own_size, length)
        requests.append(request(prompt, num_output=3, seed=number))
    check(requests, size)


def test_two_streams_in_turn_need_room_for_both():
    """Prompts of two full blocks and a token: A B A B. A cache of two blocks has lost all of A."""
    prompts = [request(SegmentPrompt(((seed, 9),))) for seed in (1, 2, 1, 2)]
    curve = check(prompts, 4)
    assert [int(found) for found in curve.found] == [0, 0, 0, 2, 4]
    assert (curve.num_blocks, curve.num_different, curve.prompt_tokens) == (8, 4, 36)
    assert curve.hit_pct(4) == curve.hit_pct(10**9) == pytest.approx(100 * 16 / 36)
    assert (curve.smallest(0.5), curve.smallest(0.9)) == (3, 4)


def test_warm_up_fills_the_cache_and_counts_nowhere():
    """The second request finds what the warm-up left."""
    prompt = SegmentPrompt(((1, 9),))
    curve = hit_curve(listed([request(prompt, warm_up=True), request(prompt)]), 4)
    assert (curve.prompt_tokens, curve.hit_pct(2)) == (9, pytest.approx(100 * 8 / 9))


def test_clients_take_turns_as_their_pauses_say():
    """If answers take no time: client 0 at 5 and 6, client 1 at 1 and 9."""
    clients = [
        [Turn(pause, request(SegmentPrompt(((1, 4),)), rid=rid)) for pause, rid in turns]
        for turns in ([(5, "a0"), (1, "a1")], [(1, "b0"), (8, "b1")])
    ]
    order = [each.spec.rid for each in in_time_order(listed(clients=clients))]
    assert order == ["b0", "a0", "a1", "b1"]


def test_more_blocks_than_fit_memory_are_refused(synthetic, monkeypatch):
    """In one line that says what helps."""
    monkeypatch.setattr("sim.workload.reuse.blocks.MAX_BLOCKS", 29)
    line = "30 blocks of 16 tokens, above 29: make the blocks larger"
    with pytest.raises(InputError, match=line):
        hit_curve(synthetic(num_requests=5))
    assert hit_curve(synthetic(num_requests=5), 20).num_blocks == 25


def test_curve_of_nothing_shared_is_zero(synthetic):
    """No block is used twice."""
    curve = hit_curve(synthetic(num_requests=5))
    assert (curve.block_size, curve.max_blocks, curve.hit_pct(100)) == (16, 0, 0.0)

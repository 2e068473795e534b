"""Deciding a step while the previous one runs (rules 12 and 13)."""

import numpy as np
import pytest

from sim.core.batch import END_TOKEN
from sim.core.tokens import ArrayPrompt, stream_token_ids
from sim.engine.request import OutputTokens
from sim.vllm.request import RequestBlocks

_AHEAD = {"async_scheduling": True}


@pytest.mark.parametrize("num_outputs", [1, 2, 3, 5])
def test_limit_is_foreseen(make_server, num_outputs):
    """No row is run for a token beyond it."""
    server = make_server(**_AHEAD)
    server.add("a", 20, output=num_outputs)
    steps = [step for step in server.finish() if step]
    assert steps == [{"a": 20}] + [{"a": 1}] * (num_outputs - 1)


def test_end_token_is_found_out_a_step_late(make_server):
    """One row is run in vain; its token does not count, its slot is nobody's block."""
    server = make_server(block_size=4, **_AHEAD)
    server.add("a", 10, output=6, limit=9)
    steps = [step for step in server.finish() if step]
    assert steps == [{"a": 10}] + [{"a": 1}] * 6
    assert server.records["a"].output_tokens == 6
    # 15 of 16 tokens: whether the last one was computed makes no difference.
    answer = [*stream_token_ids(1 << 20 | 97, 0, 5), END_TOKEN]
    kv = server.engine.kv
    again = ArrayPrompt(np.array([*stream_token_ids(97, 0, 10), *answer, 0]))
    hit = kv.find_longest_cache_hit(RequestBlocks(again, OutputTokens(None, None)), 17)
    assert hit.num_tokens == 12


def test_row_with_its_last_token_in_flight_is_passed_over(make_server):
    """It keeps its slot until the token is there; others go on."""
    server = make_server(max_num_seqs=2, **_AHEAD)
    server.add("a", 10, output=2)
    server.add("b", 10, output=5)
    server.add("c", 10, output=5)
    steps = [server.step_ahead() for _ in range(4)]
    assert steps == [{"a": 10, "b": 10}, {"a": 1, "b": 1}, {"b": 1}, {"b": 1, "c": 10}]


def test_row_with_its_last_token_in_flight_leaves_the_budget_to_others(make_server):
    """What it does not get is enough for a request that waits."""
    server = make_server(max_num_batched_tokens=10, max_num_seqs=10, **_AHEAD)
    server.add("a", 10, output=2)
    steps = [server.step_ahead()]
    server.add("b", 19)
    steps += [server.step_ahead() for _ in range(2)]
    assert steps == [{"a": 10}, {"a": 1, "b": 9}, {"b": 10}]


def test_prompt_and_answer_are_found_by_the_next_turn(make_server):
    """300 tokens of which the last is never computed: 18 full blocks."""
    server = make_server(**_AHEAD)
    server.add("a", (1, 100), output=200, output_seed=7, ignore_eos=True)
    server.finish()
    server.add("b", (1, 100), (7, 200), (2, 10))
    server.finish()
    assert server.cached("b") == 288


@pytest.mark.parametrize(("num_known", "found"), [(13, 20), (14, 20), (15, 24)])
def test_answer_is_found_before_its_last_token_is_there(make_server, num_known, found):
    """All of what has come in but the newest token, whose own slot is in flight."""
    server = make_server(block_size=4, **_AHEAD)
    server.add("a", (1, 10), output=num_known + 1, output_seed=7, ignore_eos=True)
    for _ in range(num_known + 1):
        server.step_ahead()
    server.add("b", (1, 10), (7, num_known), (2, 10))
    assert server.step_ahead() == {"b": 20 + num_known - found}


# ---- preemption with a token in flight ---------------------------------------------------------


def test_victim_keeps_the_token_in_flight(make_server):
    """It comes back with one more token than it had when it was preempted."""
    server = make_server(num_gpu_blocks=11, enable_prefix_caching=False, **_AHEAD)
    server.add("a", 80, output=3)
    server.add("b", 80, output=5)
    assert server.step_ahead() == {"a": 80, "b": 80}
    assert server.step_ahead() == {"a": 1}
    assert server.preempted == [("a", "b")]
    steps = [step for step in server.finish() if step]
    assert steps == [{"a": 1}, {"b": 81}, {"b": 1}, {"b": 1}, {"b": 1}]
    assert server.records["b"].output_tokens == 5


@pytest.mark.parametrize(("output", "limit"), [(1, 9), (9, 1)])
def test_victim_may_end_while_it_waits(make_server, output, limit):
    """Its last token was on its way, known or not."""
    server = make_server(num_gpu_blocks=11, **_AHEAD)
    server.add("a", 80, output=5)
    server.add("b", 80, output=output, limit=limit)
    server.step_ahead()
    assert server.decide() == {"a": 1}
    assert server.preempted == [("a", "b")]
    assert server.waiting == "b"
    assert server.land() == ["b"]
    assert server.waiting == ""
    assert server.records["b"].output_tokens == server.records["b"].preemptions == 1


@pytest.mark.parametrize(("ahead", "num_new"), [(False, 9 - 8), (True, 9 - 4)])
def test_block_filled_by_the_step_in_flight_is_lost_with_its_request(make_server, ahead, num_new):
    """b needs a third block and gives itself up; nobody has looked at its second one yet."""
    server = make_server(num_gpu_blocks=5, block_size=4, async_scheduling=ahead)
    server.add("a", 6, output=3)
    server.add("b", 7, output=5)
    steps = [step for step in server.finish() if step]
    assert steps[:3] == [{"a": 6, "b": 7}, {"a": 1, "b": 1}, {"a": 1}]
    assert steps[3] == {"b": num_new}


@pytest.mark.parametrize(("version", "turn"), [("0.19.0", {}), ("0.33.0", {"y": 1})])
def test_priority_victim_that_was_passed_over_cost_another_one_its_turn(make_server, version, turn):
    """v stands before x and was not scheduled: 0.19.0 counts on as if it stood there still."""
    server = make_server(
        version=version, num_gpu_blocks=6, block_size=4, scheduling_policy="priority", **_AHEAD
    )
    server.add("v", 5, output=2, priority=2)
    server.step_ahead()
    server.add("x", 4, output=9, priority=0)
    server.add("y", 6, output=9, priority=0)
    assert server.step_ahead() == {"v": 1, "x": 4, "y": 6}
    assert server.step_ahead() == {"x": 1} | turn
    assert server.preempted == [("x", "v")]
    assert server.records["v"].output_tokens == 2
    assert server.step_ahead() == {"x": 1, "y": 1}
    server.finish()
    assert server.records["y"].output_tokens == 9

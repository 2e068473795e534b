"""Which requests are preempted for lack of blocks, and the effect on the step (rule 4)."""

import pytest

_BY_PRIORITY = {"scheduling_policy": "priority"}


def test_decode_preempts_the_request_admitted_last(make_server):
    """Ten blocks, two prompts of five: the first decode step needs an eleventh."""
    server = make_server(num_gpu_blocks=11)
    server.add("a", 80)
    server.add("b", 80)
    assert server.step() == {"a": 80, "b": 80}
    assert server.step() == {"a": 1}
    assert server.preempted == [("a", "b")]
    assert (server.running, server.waiting) == ("a", "b")
    assert server.num_free_blocks == 4


def test_victims_go_back_to_the_front_in_their_order(make_server):
    """The last admitted goes first, and ends up behind the others; newcomers stay behind all."""
    server = make_server(num_gpu_blocks=7, block_size=4)
    for rid in "abcdef":
        server.add(rid, 4)
    server.step()
    server.add("z", 1)
    assert server.step() == dict.fromkeys("abc", 1)
    assert server.preempted == [("a", "f"), ("b", "e"), ("c", "d")]
    assert server.waiting == "defz"


def test_step_that_preempts_admits_nobody(make_server):
    """Though b's blocks would be plenty for z; a step later z still waits behind b."""
    server = make_server(num_gpu_blocks=11)
    server.add("a", 80)
    server.add("b", 80)
    server.step()
    server.add("z", 1)
    assert server.step() == {"a": 1}
    assert server.num_free_blocks == 4
    assert server.step() == {"a": 1}
    assert server.waiting == "bz"


@pytest.mark.parametrize(("caching", "found"), [(False, 0), (True, 64)])
def test_victim_is_computed_again_outputs_included(make_server, caching, found):
    """Prompt and 17 outputs, but for the blocks of them that nobody took meanwhile."""
    server = make_server(num_gpu_blocks=13, enable_prefix_caching=caching)
    server.add("a", 80, output=34)
    server.add("b", 80)
    steps = server.finish()
    assert steps[16:18] == [{"a": 1, "b": 1}, {"a": 1}]
    assert steps[34] == {"b": 97 - found}
    assert server.records["b"].preemptions == 1
    assert server.records["b"].output_tokens == 100
    assert server.cached("b") == 0


def test_victim_that_comes_back_is_taken_in_chunks(make_server):
    """What it computes again is a prompt like others."""
    server = make_server(
        version="0.19.0",  # a later one spares a request that is alone
        num_gpu_blocks=13,
        long_prefill_token_threshold=50,
        enable_prefix_caching=False,
    )
    server.add("a", 80, output=33)
    server.add("b", 80)
    steps = server.finish()
    assert steps[18] == {"a": 1}
    assert steps[34:37] == [{"b": 50}, {"b": 47}, {"b": 1}]


def test_priority_victim_is_the_least_important_then_the_last_to_arrive(make_server):
    """The larger value; the order of admission decides nothing."""
    server = make_server(num_gpu_blocks=4, **_BY_PRIORITY)
    server.add("a", 8, priority=1, arrival_ns=2)
    server.add("b", 16, priority=0, arrival_ns=3)
    server.add("c", 8, priority=1, arrival_ns=1)
    server.step()
    assert server.running == "bca"
    server.step()
    assert server.preempted == [("b", "a")]
    server = make_server(num_gpu_blocks=4, **_BY_PRIORITY)
    server.add("a", 8, priority=1, arrival_ns=1)
    server.step()
    server.add("c", 8, priority=2, arrival_ns=2)
    server.step()
    server.add("b", 16, priority=0, arrival_ns=3)
    server.step()
    assert server.running == "acb"
    server.step()
    assert server.preempted == [("b", "c")]


def test_priority_victim_of_equals_is_the_first_admitted(make_server):
    """Of those that arrived at the same time, the name does not count."""
    server = make_server(num_gpu_blocks=4, **_BY_PRIORITY)
    for rid, num_tokens in (("a", 16), ("b", 8), ("c", 8)):
        server.add(rid, num_tokens, priority=int(rid != "a"))
    server.step()
    server.step()
    assert server.preempted == [("a", "b")]


def test_priority_victim_may_precede_the_one_in_need(make_server):
    """It had its token of this step already; afterwards it computes prompt and outputs again."""
    server = make_server(num_gpu_blocks=5, enable_prefix_caching=False, **_BY_PRIORITY)
    server.add("a", 30, priority=1)
    assert server.step() == {"a": 30}
    server.add("b", 32, priority=0, output=2)
    assert server.step() == {"a": 1, "b": 32}
    assert server.step() == {"b": 1}
    assert server.preempted == [("b", "a")]
    assert "b" in server.records
    assert server.step() == {"a": 32}


def test_priority_budget_of_a_victim_goes_to_those_behind(make_server):
    """d has three tokens in the step in which a's is taken back, for a budget of seven."""
    server = make_server(
        max_num_batched_tokens=7,
        max_num_seqs=4,
        num_gpu_blocks=8,
        block_size=4,
        max_model_len=100,
        long_prefill_token_threshold=3,
        enable_prefix_caching=False,
        scheduler_reserve_full_isl=False,
        **_BY_PRIORITY,
    )
    server.add("a", 3, priority=1)
    server.step()
    server.add("b", 3, priority=0)
    server.step()
    server.add("c", 40, priority=0)
    server.add("d", 40, priority=0)
    assert server.step() == server.step() == {"a": 1, "b": 1, "c": 3, "d": 2}
    assert server.step() == {"b": 1, "c": 3, "d": 3}
    assert server.preempted == [("c", "a")]


@pytest.mark.parametrize(("version", "behind"), [("0.19.0", {}), ("0.33.0", {"c": 1})])
def test_request_that_preempts_itself_ended_the_pass(make_server, version, behind):
    """In 0.19.0 a request behind it gets nothing in this step, and goes on in the next."""
    server = make_server(version=version, num_gpu_blocks=7, block_size=4, **_BY_PRIORITY)
    for rid, num_tokens, priority in (("a", 5, 0), ("b", 7, 2), ("c", 5, 1)):
        server.add(rid, num_tokens, priority=priority)
        server.step()
    assert server.running == "abc"
    assert server.step() == {"a": 1} | behind
    assert server.preempted == [("b", "b")]
    assert (server.running, server.waiting) == ("ac", "b")
    assert server.step() == {"a": 1, "c": 1}


def test_preemption_by_a_decision_without_rows_is_told_with_the_next(make_server):
    """The first one preempts itself, and in 0.19.0 with that nobody gets anything."""
    server = make_server(version="0.19.0", num_gpu_blocks=3, block_size=4, **_BY_PRIORITY)
    server.add("a", 3, priority=1, output=5)
    server.step()
    server.add("b", 4, priority=0, output=4)
    assert server.step() == {"a": 1, "b": 4}
    assert server.step() == {}
    assert server.preempted == [("a", "a")]
    assert server.step() == {"b": 1}
    assert server.preempted == []
    assert server.decided.state.preempted == (("a", ("a",)),)
    assert server.step() == {"b": 1}
    assert server.decided.state.preempted == ()

"""A token budget for each step: running requests first, prompts in chunks (rules 2 and 3)."""

import pytest


def steps_of(server, num_steps, **prompts):
    """Requests that arrive together, and the tokens that each gets in the first steps."""
    for rid, num_tokens in prompts.items():
        server.add(rid, num_tokens)
    return [server.step() for _ in range(num_steps)]


def test_waiting_requests_that_fit_all_enter_in_one_step(make_server):
    """In order of arrival, and in that order they run."""
    server = make_server()
    prompts = dict.fromkeys("cabdefghij", 10)
    assert steps_of(server, 1, **prompts) == [prompts]
    assert server.running == "cabdefghij"
    assert server.waiting == ""
    assert server.step() == dict.fromkeys(prompts, 1)


def test_chunked_prefill_cuts_the_prompt_that_exceeds_the_budget(make_server):
    """Those behind it wait until it leaves some budget; then they share a step with it."""
    server = make_server(max_num_batched_tokens=1024, max_num_seqs=3)
    first, second = steps_of(server, 2, a=800, b=800, c=10, d=10)
    assert first == {"a": 800, "b": 224}
    assert second == {"a": 1, "b": 576, "c": 10}


def test_prompt_that_must_stay_whole_blocks_those_behind_it(make_server):
    """Shorter ones do not jump; it enters when its turn has the budget."""
    server = make_server(max_num_batched_tokens=1024, enable_chunked_prefill=False)
    first, second = steps_of(server, 2, a=800, b=800, c=10)
    assert first == {"a": 800}
    assert second == {"a": 1, "b": 800, "c": 10}


def test_running_requests_take_from_the_budget_first(make_server):
    """What ten decode rows leave of 16 is for the new prompt."""
    server = make_server(max_num_batched_tokens=16, max_num_seqs=16)
    steps_of(server, 1, **dict.fromkeys("abcdefghij", 1))
    server.add("z", 20)
    assert server.step() == dict.fromkeys("abcdefghij", 1) | {"z": 6}


def test_budget_spent_by_a_chunk_keeps_the_queue_out(make_server):
    """Nobody is admitted next to a prompt that takes all, however short."""
    server = make_server(max_num_batched_tokens=32, max_num_seqs=32)
    steps = steps_of(server, 4, a=100, b=10)
    assert steps == [{"a": 32}, {"a": 32}, {"a": 32}, {"a": 4, "b": 10}]


@pytest.mark.parametrize("caching", [True, False])
def test_threshold_lets_long_prompts_advance_together(make_server, caching):
    """Each has at most 400 tokens a step; the third has what is left, then all it lacks."""
    server = make_server(
        max_num_batched_tokens=1024,
        long_prefill_token_threshold=400,
        enable_prefix_caching=caching,
    )
    steps = steps_of(server, 4, a=800, b=800, c=800)
    assert steps[:2] == [{"a": 400, "b": 400, "c": 224}] * 2
    assert steps[2] == {"a": 1, "b": 1, "c": 352}
    assert steps[3] == {"a": 1, "b": 1, "c": 1}


def test_threshold_cuts_prompts_even_without_chunked_prefill(make_server):
    """It comes before the question whether the prompt fits the budget."""
    server = make_server(
        max_num_batched_tokens=1024, long_prefill_token_threshold=600, enable_chunked_prefill=False
    )
    first, second = steps_of(server, 2, a=800, b=800)
    assert first == {"a": 600}
    assert second == {"a": 200, "b": 600}


def test_prompts_in_progress_are_rows_of_their_own_until_the_last_chunk(make_server):
    """A chunk gives no token; the last one does."""
    server = make_server(max_num_batched_tokens=60, max_num_seqs=4)
    server.add("a", 100, output=2)
    assert [server.step() for _ in range(3)] == [{"a": 60}, {"a": 40}, {"a": 1}]
    assert server.records["a"].output_tokens == 2

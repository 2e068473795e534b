"""Which requests are accepted, and what ends them (rule 1)."""

import pytest


@pytest.mark.parametrize(("prompt", "status"), [(63, "finished"), (64, "rejected")])
def test_prompt_that_fills_the_model_length_is_rejected(make_server, prompt, status):
    """There must be room for a token."""
    server = make_server(max_model_len=64)
    server.add("a", prompt)
    server.finish()
    assert server.records["a"].status.value == status
    assert server.records["a"].output_tokens == (status == "finished")


@pytest.mark.parametrize("ahead", [False, True])
def test_model_length_ends_a_request(make_server, ahead):
    """Prompt and output together; no step is decided for the token after."""
    server = make_server(max_model_len=64, async_scheduling=ahead)
    server.add("a", 60, output=50, ignore_eos=True)
    steps = server.finish()
    assert server.records["a"].output_tokens == 4
    assert sum(step.get("a", 0) for step in steps) == 63


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize(
    ("facts", "num_tokens"),
    [
        ({"output": 3, "limit": 10}, 3),
        ({"output": 10, "limit": 3}, 3),
        ({"output": 3, "limit": 3}, 3),
        ({"output": 1, "limit": 1}, 1),
        ({"output": 3, "limit": 10, "ignore_eos": True}, 10),
    ],
)
def test_end_token_or_limit_ends_a_request(make_server, ahead, facts, num_tokens):
    """Whichever comes first; an ignored end token is a token like others."""
    server = make_server(async_scheduling=ahead)
    server.add("a", 20, **facts)
    server.finish()
    assert server.records["a"].output_tokens == num_tokens


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("caching", [False, True])
def test_all_blocks_come_back(make_server, ahead, caching):
    """After preemptions too; nobody runs, waits, or holds a slot."""
    server = make_server(
        num_gpu_blocks=9, block_size=4, enable_prefix_caching=caching, async_scheduling=ahead
    )
    for rid in "abcdef":
        server.add(rid, (1, 4), 3, output=9)
    server.finish()
    assert len(server.records) == 6
    assert sum(record.preemptions for record in server.records.values()) > 0
    assert server.num_free_blocks == 8
    assert (server.running, server.waiting) == ("", "")
    assert server.engine.scheduler.num_slots_used == 0


def test_requests_that_end_together_free_their_blocks_in_order_of_admission(make_server):
    """Of each the last block first; those are the next to be taken."""
    server = make_server(num_gpu_blocks=9, block_size=4)
    server.add("a", 8, output=1)
    server.add("b", 12, output=1)
    server.step()
    assert server.engine.kv.pool.queued_blocks() == [5, 6, 7, 1, 0, 4, 3, 2]

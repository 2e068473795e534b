"""Admission: the cached prefix, the tokens that are granted, and the obstacles (rules 7, 9)."""

import pytest


@pytest.mark.parametrize(
    ("num_tokens", "found"), [(15, 0), (16, 0), (17, 16), (32, 16), (33, 32), (40, 32)]
)
def test_same_prompt_again_finds_full_blocks_but_for_its_last_token(make_server, num_tokens, found):
    """A prompt of whole blocks computes its last block again: something must be sampled from."""
    server = make_server()
    server.add("a", (1, num_tokens), output=1)
    server.step()
    server.add("b", (1, num_tokens), output=1)
    assert server.step() == {"b": num_tokens - found}
    assert server.cached("b") == found


def test_caching_off_finds_nothing(make_server):
    """Not even while the first one runs."""
    server = make_server(enable_prefix_caching=False)
    server.add("a", (1, 40))
    server.step()
    server.add("b", (1, 40))
    assert server.step() == {"a": 1, "b": 40}


def test_duplicates_admitted_in_one_step_share_blocks(make_server):
    """The second finds what the first is only about to compute."""
    server = make_server()
    server.add("a", (1, 100))
    server.add("b", (1, 100))
    assert server.step() == {"a": 100, "b": 4}
    assert server.num_free_blocks == server.config.num_gpu_blocks - 1 - 8


def test_chunks_are_found_before_the_prompt_is_done(make_server):
    """As far as they are full blocks."""
    server = make_server(max_num_batched_tokens=40, long_prefill_token_threshold=30, max_num_seqs=4)
    server.add("a", (1, 100))
    assert server.step() == {"a": 40}
    server.add("b", (1, 100))
    assert server.step() == {"a": 30, "b": 10}
    assert server.cached("b") == 64


def test_next_turn_finds_prompt_and_answer(make_server):
    """Whoever goes on from 100 + 200 tokens computes the incomplete block and what is new."""
    server = make_server()
    server.add("a", (1, 100), output=200, output_seed=7, ignore_eos=True)
    server.finish()
    server.add("b", (1, 100), (7, 200), (2, 10))
    server.step()
    assert server.cached("b") == 300 // 16 * 16


def test_block_whose_last_slot_is_the_last_token_is_not_found(make_server):
    """Nobody computed that token: it was sampled, and that was all."""
    server = make_server()
    server.add("a", (1, 20), output=12, output_seed=7, ignore_eos=True)
    server.finish()
    server.add("b", (1, 20), (7, 12), (2, 10))
    server.step()
    assert server.cached("b") == 16


def test_cached_tokens_are_those_of_the_first_admission(make_server):
    """After a preemption most of the prompt is found again, and that counts for nothing."""
    server = make_server(num_gpu_blocks=9)
    server.add("a", (1, 32), 48, output=9)
    server.add("b", (1, 32), 48, output=9)
    steps = server.finish()
    assert [step["b"] for step in steps if "b" in step][:2] == [48, 81 - 64]
    assert server.records["b"].preemptions == 1
    assert server.cached("b") == 32


# ---- obstacles ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reserves", "step", "waiting"),
    [(True, {"a": 1}, "bc"), (False, {"a": 1, "b": 63}, "c")],
)
def test_reserve_full_isl_asks_for_the_whole_prompt(make_server, reserves, step, waiting):
    """Otherwise the first chunk is enough. Nobody jumps ahead of who waits."""
    server = make_server(
        num_gpu_blocks=11,
        max_num_batched_tokens=64,
        max_num_seqs=4,
        scheduler_reserve_full_isl=reserves,
    )
    server.add("a", 50)
    server.step()
    server.add("b", 120)
    server.add("c", 10)
    assert server.step() == step
    assert server.waiting == waiting


def test_reserve_full_isl_reserves_nothing(make_server):
    """Of two prompts that fit alone both are admitted, and one is preempted on the way."""
    server = make_server(num_gpu_blocks=11, max_num_batched_tokens=64, max_num_seqs=4,
                         long_prefill_token_threshold=32)  # fmt: skip
    server.add("a", 120, output=2)
    server.add("b", 120, output=2)
    steps = server.finish()
    assert steps[:2] == [{"a": 32, "b": 32}] * 2
    assert server.records["b"].preemptions == 1


def test_hits_that_nobody_uses_take_free_blocks(make_server):
    """b finds three blocks and needs two more; of five free ones c's next token takes one."""
    server = make_server(num_gpu_blocks=8)
    server.add("a", (1, 48), output=1)
    server.add("c", 32)
    server.step()
    assert server.num_free_blocks == 5
    server.add("b", (1, 48), 32)
    assert server.step() == {"c": 1}
    assert server.num_free_blocks == 4
    assert server.waiting == "b"


def test_hits_that_somebody_uses_take_none(make_server):
    """The same, but a runs still: b needs two blocks, and there they are."""
    server = make_server(num_gpu_blocks=9)
    server.add("a", (1, 50))
    server.add("c", 32)
    server.step()
    server.add("b", (1, 48), 32)
    assert server.num_free_blocks == 2
    assert server.step() == {"a": 1, "c": 1}
    server = make_server(num_gpu_blocks=10)
    server.add("a", (1, 50))
    server.add("c", 32)
    server.step()
    server.add("b", (1, 48), 32)
    assert server.step() == {"a": 1, "c": 1, "b": 32}


def test_seats_are_taken_by_prompts_in_progress_too(make_server):
    """Two slots: the third request waits until one ends."""
    server = make_server(max_num_seqs=2, long_prefill_token_threshold=10)
    server.add("a", 25, output=1)
    server.add("b", 10, output=9)
    server.add("c", 10, output=9)
    assert [server.step() for _ in range(4)] == [
        {"a": 10, "b": 10},
        {"a": 10, "b": 1},
        {"a": 5, "b": 1},
        {"b": 1, "c": 10},
    ]

"""Decode rows in the prefill steps, beside them, or after them."""

import pytest

SMALLER = (
    "workload.parts.0.workload.num_requests=240",
    "workload.parts.1.workload.num_requests=120",
)
MODES = {
    "plain": {"scheduler.enable_mixed_chunk": False, "scheduler.decode_first": False},
    "turns": {"scheduler.enable_mixed_chunk": False, "scheduler.decode_first": True},
    "mixed": {"scheduler.enable_mixed_chunk": True, "scheduler.decode_first": False},
}


@pytest.fixture(scope="module")
def by_mode(study):
    results = study("mixed-chunk", {"list": list(MODES.values()), "seeds": [1, 2]}, *SMALLER)

    def means(metric):
        return {
            name: results.mean(metric, **{key.rpartition(".")[2]: v for key, v in mode.items()})
            for name, mode in MODES.items()
        }

    return means


def test_mixed_chunk_bounds_the_gaps_as_taking_turns_does(by_mode):
    """No gap is longer than a chunk and a decode step; prefill first stalls for whole prompts."""
    longest = by_mode("max_itl_ms")
    assert longest["plain"] > 5 * max(longest["turns"], longest["mixed"])


def test_mixed_chunk_first_tokens_come_later_but_sooner_than_in_turns(by_mode):
    """Each chunk carries decode rows; in turns it waits for a decode step, and reads weights twice.

    Tokens after the first come soonest in mixed batches.
    """
    ttft, tpot = by_mode("mean_ttft_ms"), by_mode("mean_tpot_ms")
    assert ttft["plain"] < ttft["mixed"] < ttft["turns"]
    assert tpot["mixed"] < 0.9 * tpot["turns"]
    assert tpot["mixed"] < 0.9 * tpot["plain"]

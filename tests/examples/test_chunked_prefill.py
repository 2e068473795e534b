"""A long prompt in chunks: on an idle server, beside other prompts, and in mixed batches."""

import pytest

from sim.sglang.config import SchedulerConfig
from sim.workload.workload import listed
from tests.support.serve import serve
from tests.support.workloads import scripted


def serve_prefills(requests, *, mixed):
    """The steps with prefill rows, with chunks of 1,024 tokens."""
    config = SchedulerConfig(
        max_total_tokens=32_000,
        page_size=16,
        chunked_prefill_size=1_024,
        enable_mixed_chunk=mixed,
        disable_overlap_schedule=True,
    )
    return [step for step in serve(listed(requests), config).steps if step["prefill"]]


def prefill_steps(*, mixed):
    """Prompt a (5,000 tokens) arrives alone; b (3,000) while a decodes."""
    requests = [
        scripted("a", (1, 5_000), output=40),
        scripted("b", (2, 3_000), output=5, arrival_ns=300_000_000),
    ]
    return serve_prefills(requests, mixed=mixed)


def chunks_of(rid, steps):
    return [row[2] for step in steps for row in step["prefill"] if row[0] == rid]


@pytest.mark.parametrize("mixed", [False, True])
def test_chunked_prefill_long_prompt_alone_is_split_by_the_budget(mixed):
    """Scenario 1 and 2: every chunk starts where the last one ended, found in the cache."""
    rows = [step["prefill"] for step in prefill_steps(mixed=mixed)[:5]]
    assert rows == [
        [["a", 0, 1_024]],
        [["a", 1_024, 1_024]],
        [["a", 2_048, 1_024]],
        [["a", 3_072, 1_024]],
        [["a", 4_096, 904]],
    ]


def test_chunked_prefill_one_request_at_a_time_is_chunked():
    """While chunks are to come the request is named; with its last chunk it is not."""
    chunked = [step["chunked"] for step in prefill_steps(mixed=False)]
    assert chunked == ["a", "a", "a", "a", None, "b", "b", None]


def test_chunked_prefill_without_mixing_decode_waits():
    """Scenario 3 without mixed batches: b's chunks run alone, a sits still."""
    steps = prefill_steps(mixed=False)[5:]
    assert [step["mode"] for step in steps] == ["extend"] * 3
    assert [step["prefill"][0][2] for step in steps] == [1_024, 1_024, 952]


def test_chunked_prefill_mixed_carries_decode_rows_in_the_same_pass():
    """Scenario 3: one decode row and a chunk. The first cut ends a page: 1,023 becomes 1,008."""
    steps = prefill_steps(mixed=True)[5:]
    assert [step["mode"] for step in steps] == ["mixed"] * 3
    assert [step["n_decode"] for step in steps] == [1, 1, 1]
    assert [step["prefill"] for step in steps] == [
        [["b", 0, 1_008]],
        [["b", 1_008, 1_023]],
        [["b", 2_031, 969]],
    ]


@pytest.mark.parametrize("short", [1, 16])
def test_chunk_behind_a_short_prompt_is_what_the_budget_leaves(short):
    """A page of the first step is spent: 1,008, then whole chunks, then the rest of 5,000."""
    requests = [scripted("short", (1, short), output=60), scripted("long", (2, 5_000), output=3)]
    steps = serve_prefills(requests, mixed=False)
    assert chunks_of("long", steps) == [1_008, 1_024, 1_024, 1_024, 920]


def test_chunk_beside_five_decode_rows_leaves_them_their_tokens():
    """Mixed: five rows take five tokens of every step; continuations are not cut to pages."""
    requests = [scripted(f"d{i}", (10 + i, 40), output=60) for i in range(5)]
    requests.append(scripted("long", (2, 5_000), output=3, arrival_ns=100_000_000))
    steps = serve_prefills(requests, mixed=True)
    assert chunks_of("long", steps) == [1_008, 1_019, 1_019, 1_019, 935]

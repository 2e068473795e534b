"""What the chunk budget leaves of a long prompt when others share the step."""

import pytest

from sim.scheduler.config import SchedulerConfig
from sim.testing.serve import serve
from sim.testing.workloads import ListWorkload, scripted


def chunks_of(rid, requests, *, mixed):
    config = SchedulerConfig(
        max_total_tokens=32_000,
        page_size=16,
        chunked_prefill_size=1_024,
        enable_mixed_chunk=mixed,
        disable_overlap_schedule=True,
    )
    steps = serve(ListWorkload(requests), config).steps
    return [row[2] for step in steps for row in step["prefill"] if row[0] == rid]


@pytest.mark.parametrize("short", [1, 16])
def test_chunk_behind_a_short_prompt_is_what_the_budget_leaves(short):
    """A page of the first step is spent: 1,008, then whole chunks, then the rest of 5,000."""
    requests = [scripted("short", (1, short), output=60), scripted("long", (2, 5_000), output=3)]
    assert chunks_of("long", requests, mixed=False) == [1_008, 1_024, 1_024, 1_024, 920]


def test_chunk_beside_five_decode_rows_leaves_them_their_tokens():
    """Mixed: five rows take five tokens of every step; continuations are not cut to pages."""
    requests = [scripted(f"d{i}", (10 + i, 40), output=60) for i in range(5)]
    requests.append(scripted("long", (2, 5_000), output=3, arrival_ns=100_000_000))
    chunks = chunks_of("long", requests, mixed=True)
    assert chunks == [1_008, 1_019, 1_019, 1_019, 935]
    assert sum(chunks) == 5_000

"""The chunk size matters little without mixed batches; with them it decides the token gaps."""

import pytest

SMALLER = (
    "workload.parts.0.workload.num_requests=150",
    "workload.parts.1.workload.num_requests=75",
)
CHUNKS = [512, 2048, 8192, -1]
SWEEP = {
    "scheduler.enable_mixed_chunk": [False, True],
    "scheduler.chunked_prefill_size": CHUNKS,
    "seeds": [1],
}


@pytest.fixture(scope="module")
def along(study):
    results = study("chunk-size", SWEEP, *SMALLER)

    def means(metric, *, mixed):
        return results.means(metric, "chunked_prefill_size", CHUNKS, enable_mixed_chunk=mixed)

    return means


def test_chunk_size_without_mixed_batches_bounds_no_gap(along):
    """Chunks follow each other without a decode step between: the gap is the whole prompt's."""
    longest = along("max_itl_ms", mixed=False)
    assert longest[0] >= longest[1] >= longest[2] >= longest[3] > 500


def test_chunk_size_with_mixed_batches_bounds_the_gaps(along):
    """A gap is one chunk's time: it grows with the chunk until prompts are whole."""
    longest = along("max_itl_ms", mixed=True)
    assert longest[0] < 40 < longest[1] < 120 < longest[2] < 400 < longest[3]
    assert along("p99_tpot_ms", mixed=True)[0] < 0.6 * along("p99_tpot_ms", mixed=False)[0]


def test_chunk_size_small_chunks_delay_first_tokens_in_mixed_batches(along):
    """Decode rows and reading the weights again make every chunk dearer."""
    ttft = along("mean_ttft_ms", mixed=True)
    assert ttft[0] > 1.2 * ttft[1] > 1.2 * ttft[2]


def test_chunk_size_off_switches_mixed_batches_off(along):
    """Whole prompts: both ways are the same run."""
    assert along("mean_ttft_ms", mixed=True)[3] == along("mean_ttft_ms", mixed=False)[3]

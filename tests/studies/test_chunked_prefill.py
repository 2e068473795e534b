"""The statements of docs/how-to/chunked-prefill.md."""

import pytest

CHUNKS = [512, 2048, 8192, -1]


@pytest.fixture(scope="module")
def mean(study):
    """A metric's value with these settings."""
    results = study("../chunked-prefill")

    def value(metric, chunk, limit=16384, *, mixed=False):
        settings = {"max_prefill_tokens": limit, "enable_mixed_chunk": mixed}
        return results.mean(metric, chunked_prefill_size=chunk, **settings)

    return value


def test_smaller_chunks_alone_do_not_shorten_the_gaps(mean):
    """They follow one another; prefill comes first."""
    gaps = [mean("max_itl_ms", chunk) for chunk in CHUNKS]
    assert gaps == pytest.approx([1213, 1179, 405, 404], abs=0.6)


def test_mixed_chunks_bound_the_gaps_and_delay_long_prompts(mean):
    """The smaller the chunk, the shorter the gap."""
    gaps = [mean("max_itl_ms", chunk, mixed=True) for chunk in CHUNKS]
    assert gaps == pytest.approx([17, 59, 203, 404], abs=0.6)
    long = [mean("tenants.long.mean_ttft_ms", chunk, mixed=True) for chunk in CHUNKS[:3]]
    assert long == pytest.approx([287, 251, 244], abs=0.6)


def test_max_prefill_tokens_matters_only_below_the_chunk_size(mean):
    """There it brings the first tokens of a burst earlier, as smaller chunks do."""
    for metric in ("mean_ttft_ms", "mean_tpot_ms", "max_itl_ms"):
        for chunk in (512, 2048):
            assert mean(metric, chunk, 2048) == mean(metric, chunk)
    short = "tenants.short.mean_ttft_ms"
    assert [mean(short, chunk) for chunk in CHUNKS] == pytest.approx([129, 142, 207, 213], abs=0.6)
    assert mean(short, 8192, 2048) == pytest.approx(143, abs=0.6)
    assert mean(short, -1, 2048) == pytest.approx(136, abs=0.6)


def test_without_chunks_nothing_is_mixed(mean):
    """Both ways are the same run."""
    assert mean("mean_ttft_ms", -1, mixed=True) == mean("mean_ttft_ms", -1)

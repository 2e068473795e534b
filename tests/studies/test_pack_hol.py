"""The published packing experiment, repeated: how near the results are."""

import pytest

# Milliseconds at 50, 95 and 99 %, and tokens a second, as published.
PUBLISHED = {
    "sglang": {
        "ttft": (672, 1106, 1144),
        "tpot": (142.3, 145.7, 146.1),
        "itl": (152.9, 160.8, 189.8),
        "e2e_latency": (5184, 5341, 5347),
        "throughput": 751.6,
    },
    "pack": {
        "ttft": (217, 611, 690),
        "tpot": (156.4, 158.1, 158.2),
        "itl": (155.1, 190.2, 221.6),
        "e2e_latency": (5086, 5258, 5264),
        "throughput": 763.5,
    },
}


@pytest.fixture(scope="module")
def summaries(study):
    """Summaries by admission."""
    runs = study("pack-hol").runs
    return {run.settings["admission"]["kind"]: run.summary for run in runs}


def test_pack_hol_has_the_published_prompts(summaries):
    """32 x (512 + 1 + 1 + 1) tokens, and three more each to tell the prompts apart."""
    assert {summary["total_input_tokens"] for summary in summaries.values()} == {16_864}


def test_pack_hol_first_tokens_come_sooner_at_the_same_throughput(summaries):
    """TTFT p99 falls by about 40 %, throughput stays within 3 %, the tail of gaps grows."""
    fifo, pack = summaries["sglang"], summaries["pack"]
    assert 0.57 < pack["p99_ttft_ms"] / fifo["p99_ttft_ms"] < 0.65
    assert 1 <= pack["output_throughput"] / fifo["output_throughput"] < 1.03
    assert pack["p95_itl_ms"] > 1.1 * fifo["p95_itl_ms"]
    assert pack["p99_itl_ms"] > 1.1 * fifo["p99_itl_ms"]


@pytest.mark.parametrize("admission", PUBLISHED)
@pytest.mark.parametrize(
    ("metric", "tolerance"), [("ttft", 0.032), ("tpot", 0.01), ("itl", 0.08), ("e2e_latency", 0.01)]
)
def test_pack_hol_latencies_are_near_the_published_ones(summaries, admission, metric, tolerance):
    """Every quantile of each latency."""
    names = (f"median_{metric}_ms", f"p95_{metric}_ms", f"p99_{metric}_ms")
    found = [summaries[admission][name] for name in names]
    assert found == pytest.approx(PUBLISHED[admission][metric], rel=tolerance)


@pytest.mark.parametrize("admission", PUBLISHED)
def test_pack_hol_throughput_is_near_the_published_one(summaries, admission):
    """Within 3 %."""
    published = PUBLISHED[admission]["throughput"]
    assert summaries[admission]["output_throughput"] == pytest.approx(published, rel=0.03)

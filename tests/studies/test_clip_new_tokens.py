"""What admission charges for a stated limit: how many run at once, and how many are retracted."""

CLIPS = [64, 512, 8_192]
SMALLER = (
    "workload.clients=64",
    "workload.requests_per_client=4",
    "scheduler.max_total_tokens=20000",
)


def test_clip_new_tokens_small_admits_more_and_retracts(study):
    """Charged for all they might generate, few fit; charged for little, they are put back."""
    results = study(
        "clip-new-tokens", {"scheduler.clip_max_new_tokens": CLIPS, "seeds": [1, 2]}, *SMALLER
    )

    def at(metric):
        return results.means(metric, "clip_max_new_tokens", CLIPS)

    rows, retractions = at("mean_decode_rows"), at("retractions")
    assert rows[0] > rows[1] > 2 * rows[2]
    assert retractions[0] > 20 > retractions[1] >= retractions[2] == 0
    # With a clip below the usual output, the gain is lost to retractions.
    throughput = at("output_throughput")
    assert throughput[1] > 1.8 * throughput[2]
    assert throughput[0] < 1.05 * throughput[1]
    assert at("mean_ttft_ms") == sorted(at("mean_ttft_ms"))
    assert at("p99_tpot_ms")[0] > 2 * at("p99_tpot_ms")[1]

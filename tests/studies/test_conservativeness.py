"""Retractions against queueing, and why a low setting does not mean many retractions."""

import pytest

SMALLER = ("workload.clients=64", "scheduler.max_total_tokens=20000")
CONSERVATIVENESS = "scheduler.schedule_conservativeness"
DECAY_STEPS = "scheduler.new_token_ratio_decay_steps"
SEEDS = [1, 2]


def test_conservativeness_trades_retractions_for_queueing_if_outputs_are_overstated(study):
    """Clients use a quarter of what they ask for: reserving more means fewer at once."""
    results = study(
        "conservativeness",
        {CONSERVATIVENESS: [0.5, 1.4], "seeds": SEEDS},
        *SMALLER,
        "workload.max_new_tokens={factor: 4}",
    )

    def at(metric):
        return results.means(metric, "schedule_conservativeness", [0.5, 1.4])

    assert at("retractions")[0] > at("retractions")[1] == 0
    assert at("mean_queue_time_ms")[0] < 0.9 * at("mean_queue_time_ms")[1]
    assert at("output_throughput")[0] > 1.1 * at("output_throughput")[1]


def test_conservativeness_of_zero_keeps_what_a_retraction_reserves(study):
    """The ratio jumps at a retraction and falls in proportion to its start: from 0, never."""
    results = study(
        "conservativeness",
        {CONSERVATIVENESS: [0, 0.5], "seeds": SEEDS},
        *SMALLER,
        "workload.max_new_tokens={factor: 4}",
    )
    rows = results.means("mean_decode_rows", "schedule_conservativeness", [0, 0.5])
    assert rows[0] < 0.85 * rows[1]


def test_conservativeness_high_forgets_retractions_sooner(study):
    """Clients use all they ask for: 1.4 retracts more than 0.1, unless the decay is slow."""
    results = study(
        "conservativeness",
        {CONSERVATIVENESS: [0.1, 1.4], DECAY_STEPS: [600, 6_000], "seeds": SEEDS},
        *SMALLER,
    )

    def retractions(decay_steps):
        return results.means(
            "retractions",
            "schedule_conservativeness",
            [0.1, 1.4],
            new_token_ratio_decay_steps=decay_steps,
        )

    usual, slow = retractions(600), retractions(6_000)
    assert usual[1] > 2 * usual[0]
    assert slow[1] < 0.5 * usual[1]
    assert slow[1] == pytest.approx(slow[0], abs=0.5 * slow[0])

"""Speculative decoding pays at low loads, and longest if drafts are accepted often."""

import pytest

DRAFTS = [None, *({"method": "eagle3", "num_speculative_tokens": k} for k in (1, 3, 5))]


@pytest.fixture(scope="module")
def gains(study):
    """Output throughput as a multiple of that without drafts, by (clients, rate)."""
    results = study(
        "speculation",
        {
            "workload.clients": [4, 256],
            "acceptance.rate": [0.5, 0.9],
            "scheduler.speculative_config": DRAFTS,
        },
        "workload.requests_per_client=2",
    )

    def gain(clients, rate):
        plain, *others = results.means(
            "output_throughput", "speculative_config", DRAFTS, clients=clients, rate=rate
        )
        return [each / plain for each in others]

    return gain


def test_speculation_few_rows_gain_the_acceptance_length_less_the_drafting(gains):
    """Steps read all weights anyway; each pass of the drafter takes 5 % of one."""
    one, three, five = gains(4, 0.9)
    assert 1.6 < one < three < five
    assert one == pytest.approx(1.9 / 1.05, rel=0.1)


def test_speculation_many_rows_pay_for_rejected_drafts(gains):
    """Half of the drafts rejected: the more drafts, the slower, down to a loss."""
    one, three, five = gains(256, 0.5)
    assert one > three > five
    assert three < 1


def test_speculation_good_drafts_pay_at_any_load(gains):
    assert min(gains(256, 0.9)) > 1.1

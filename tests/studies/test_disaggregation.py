"""Disaggregated prefill and decode against servers that do both, on the same GPUs."""

import pytest

TOGETHER = None
THREE_TO_ONE = {
    "prefill": {"role": "prefill", "replicas": 3},
    "decode": {"role": "decode", "replicas": 1},
}


@pytest.fixture(scope="module")
def met(study):
    """SLO attainment and p99s at one rate, by (prompt, output, pools)."""

    def run(prompt, output, rate, pools, *overrides):
        lengths = {"prompt_tokens.mean": prompt, "output_tokens.mean": output}
        results = study(
            "disaggregation",
            {
                **{f"workload.{key}": [value] for key, value in lengths.items()},
                "workload.arrivals.rate_rps": [rate],
                "list": [{"pools": pools, **({} if pools else {"transfer": None})}],
            },
            "workload.num_requests=200",
            *overrides,
        )
        return {
            name: results.mean(name) for name in ("slo_attainment", "p99_ttft_ms", "p99_tpot_ms")
        }

    return run


def test_disaggregation_keeps_the_gaps_between_tokens_short(met):
    """A prompt of 2,000 tokens takes as long as seven decode steps, which wait for it."""
    together, split = (met(2000, 256, 19, pools) for pools in (TOGETHER, THREE_TO_ONE))
    assert split["slo_attainment"] > 0.9 > together["slo_attainment"]
    assert together["p99_tpot_ms"] > 30 > split["p99_tpot_ms"]


def test_disaggregation_one_decode_server_is_too_few_for_long_outputs(met):
    """With 1,024 tokens of output, the four servers together have more room for rows."""
    more = "workload.num_requests=450"
    together, split = (met(1000, 1024, 19, pools, more) for pools in (TOGETHER, THREE_TO_ONE))
    assert together["slo_attainment"] > 0.95 > split["slo_attainment"]


def test_disaggregation_slow_links_take_the_gain(met):
    """A prompt of 8,000 tokens has 2.6 GB of KV: half a second at 5 GB/s, for one at a time."""
    fast = met(8000, 256, 2.1, THREE_TO_ONE)
    slow = met(8000, 256, 2.1, THREE_TO_ONE, "transfer.bandwidth_gb_s=5")
    assert fast["slo_attainment"] > slow["slo_attainment"] + 0.2
    assert slow["p99_ttft_ms"] > 2 * fast["p99_ttft_ms"]

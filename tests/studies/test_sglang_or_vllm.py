"""The statements of docs/how-to/sglang-or-vllm.md, and how near measured servers are."""

import pytest

pytest.importorskip("aiconfigurator_core.sdk.engine")

CONCURRENCY = [16, 64, 128]
# Measured means, by server: TTFT and TPOT in ms for each concurrency.
MEASURED = {
    "sglang": ([493, 1322, 2485], [10.6, 19.8, 29.7]),
    2048: ([149, 252, 426], [14.3, 29.2, 50.5]),
}


@pytest.fixture(scope="module")
def means(study):
    """A metric along the concurrency; servers are `sglang`, or vLLM's tokens of a step."""
    runs = study("../sglang-or-vllm").runs

    def along(metric, server):
        found = {
            run.settings["max_concurrency"]: run.summary[metric]
            for run in runs
            if server in (run.settings["scheduler"]["family"],
                          run.settings["scheduler"].get("max_num_batched_tokens"))
        }  # fmt: skip
        return [found[concurrency] for concurrency in CONCURRENCY]

    return along


@pytest.mark.parametrize("server", MEASURED)
def test_figures_are_near_the_measured_ones(means, server):
    """TTFT within 30 %, and within 5 % at 64 and 128; TPOT within 15 %."""
    ttft, tpot = MEASURED[server]
    assert means("mean_ttft_ms", server) == pytest.approx(ttft, rel=0.3)
    assert means("mean_ttft_ms", server)[1:] == pytest.approx(ttft[1:], rel=0.05)
    assert means("mean_tpot_ms", server) == pytest.approx(tpot, rel=0.15)


def test_vllm_answers_sooner_and_sglang_generates_faster(means):
    """Whichever the load; the throughput is nearly the same."""
    for budget in (2048, 8192):
        sooner = zip(means("mean_ttft_ms", budget), means("mean_ttft_ms", "sglang"), strict=True)
        faster = zip(means("mean_tpot_ms", "sglang"), means("mean_tpot_ms", budget), strict=True)
        assert all(one < other for one, other in [*sooner, *faster])
        rates = means("output_throughput", budget)
        assert rates == pytest.approx(means("output_throughput", "sglang"), rel=0.1)


def test_most_gaps_are_short_with_sglang_and_a_few_are_long(means):
    """With vLLM all gaps are as long as a mixed step."""
    assert means("p99_itl_ms", "sglang")[2] < 20
    assert means("max_itl_ms", "sglang")[2] > 4000
    assert 60 < means("p99_itl_ms", 2048)[2] < means("max_itl_ms", 2048)[2] < 80

"""The traffic that ships is valid, long enough, and like the services that it is named for."""

from pathlib import Path

import pytest

from sim.contest.plan import plan_contest
from sim.contest.suite import suite
from sim.scenario.load import load_scenario, load_scenario_data
from sim.workload.kinds.build import build_workload
from sim.workload.kinds.stats import workload_stats

REPOSITORY = Path(__file__).parents[2]
LATENCY = {
    "kind": "linear", "step_s": 0.01, "per_prefill_token_s": 1e-5, "per_decode_request_s": 1e-5,
    "per_context_token_s": 1e-9,
}  # fmt: skip


def stats(workload, block_size=512):
    data = {"name": "a", "latency": LATENCY, "scheduler": {"max_total_tokens": 10**6}}
    loaded = load_scenario_data({**data, "workload": workload}, base_dir=REPOSITORY)
    built = build_workload(loaded.scenario.workload, seed=1, base_dir=loaded.base_dir)
    return workload_stats(built, block_size)


@pytest.mark.parametrize("name", suite())
def test_traffic_has_enough_requests_for_a_p99(name):
    assert 800 <= stats(suite()[name].workload).num_requests <= 1500
    assert suite()[name].about


def test_mooncake_conversation_is_like_the_trace():
    """Lengths within 30 %, hits of an unbounded cache within ten points."""
    trace = stats({"kind": "trace", "format": "mooncake",
                   "path": "data/traces/mooncake-conversation.first-10min.jsonl.gz"})  # fmt: skip
    drawn = stats(suite()["mooncake-conversation"].workload)
    for name in ("mean", "p50", "p99"):
        assert getattr(drawn.input_tokens, name) == pytest.approx(
            getattr(trace.input_tokens, name), rel=0.3
        )
    assert drawn.output_tokens.mean == pytest.approx(trace.output_tokens.mean, rel=0.25)
    assert drawn.token_hit_pct == pytest.approx(trace.token_hit_pct, abs=10)


def test_azure_conversation_is_like_the_trace():
    """The slice's prompts; the outputs of the whole trace are shorter than those of its slice."""
    trace = stats({"kind": "trace", "format": "azure",
                   "path": "data/traces/azure-conversation-2023.first-2000.csv.gz"})  # fmt: skip
    drawn = stats(suite()["azure-conversation"].workload)
    for name in ("mean", "p50", "p99"):
        assert getattr(drawn.input_tokens, name) == pytest.approx(
            getattr(trace.input_tokens, name), rel=0.3
        )
    assert drawn.output_tokens.mean == pytest.approx(trace.output_tokens.mean, rel=0.4)


def test_shipped_contest_is_valid():
    contest = plan_contest(load_scenario(REPOSITORY / "scenarios" / "contest.yaml"))
    assert (len(contest.settings), len(contest.traffic)) == (12, 8)

"""Forty minutes of a published trace from end to end; skipped if the trace is not there."""

import json
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def conversations(shared_dir):
    """The scenario on the first 40 minutes of Mooncake's conversations, as arguments."""
    trace = shared_dir / "traces" / "mooncake" / "conversation_trace.first-40min.jsonl.gz"
    if not trace.is_file():
        pytest.skip(f"no trace at {trace}")
    scenario = REPOSITORY / "bench" / "scenarios" / "conversation.yaml"
    return (scenario, "--format", "json", "--set", f"workload.path={trace.resolve()}")


def test_run_conversation_trace_accounts_for_every_request(simulate, conversations):
    """On four servers: nobody is lost."""
    ended = simulate("run", *conversations, "--set", "replicas=4")
    assert ended.code == 0
    summary = json.loads(ended.out)
    assert summary["completed"] + summary["rejected"] == summary["submitted"] == 7851
    assert (summary["unfinished"], summary["aborted"]) == (0, 0)
    assert summary["completed"] > 7500
    # An unbounded cache finds 35.8 % of the prompt tokens. Four separate caches find less.
    assert 0 < summary["cache_hit_rate_pct"] < 35.8


def test_run_conversation_trace_without_pressure_hits_what_an_endless_cache_hits(
    simulate, conversations
):
    """Slow arrivals and a pool for everything: only the edges of pages are lost."""
    slowly = ("--set", "workload.limit=1500", "--set", "workload.time_scale=20")
    ran = simulate("run", *conversations, *slowly, "--set", "scheduler.max_total_tokens=50000000")
    bound_pct = json.loads(simulate("workload", *conversations, *slowly).out)["token_hit_pct"]
    hit_pct = json.loads(ran.out)["cache_hit_rate_pct"]
    assert bound_pct - 0.1 < hit_pct <= bound_pct

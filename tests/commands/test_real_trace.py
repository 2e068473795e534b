"""A published trace from end to end; skipped where it is not at hand."""

import json
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


def test_run_conversation_trace_accounts_for_every_request(simulate, shared_dir):
    """The first 40 minutes of Mooncake's conversations on four servers: nobody is lost."""
    trace = shared_dir / "traces" / "mooncake" / "conversation_trace.first-40min.jsonl.gz"
    if not trace.is_file():
        pytest.skip(f"no trace at {trace}")
    ended = simulate(
        *("run", REPOSITORY / "scenarios" / "conversation.yaml", "--format", "json"),
        *("--set", f"workload.path={trace.resolve()}", "--set", "replicas=4"),
    )
    assert ended.code == 0
    summary = json.loads(ended.out)
    assert summary["completed"] + summary["rejected"] == summary["submitted"] == 7851
    assert (summary["unfinished"], summary["aborted"]) == (0, 0)
    assert summary["completed"] > 7500
    # An endless cache finds 35.8 % of the prompt tokens; four that share nothing find less.
    assert 0 < summary["cache_hit_rate_pct"] < 35.8

"""A newcomer finds a decision in few files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sim.compiled.finder import PURE

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("arguments", "most_of_decision", "most_of_step"),
    [
        (["scenarios/smoke.yaml"], 21, 21),
        (["bench/scenarios/dense-vllm.yaml", "workload.requests_per_client=2"], 22, 22),
        (["scenarios/prefill-decode.yaml"], 23, 30),
    ],
)
def test_a_decision_passes_few_files(arguments, most_of_decision, most_of_step):
    """As many as today; without parts, and on servers of a role."""
    command = [sys.executable, "-m", "bench.decision_files", *arguments]
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env=os.environ | {PURE: "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    passed = json.loads(done.stdout)
    assert passed["decision"]
    assert len(passed["decision"]) <= most_of_decision, passed["decision"]
    assert len(passed["step"]) <= most_of_step, passed["step"]

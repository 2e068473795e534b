"""`simulate tune` over the split of GPUs into prefill and decode servers."""

import json
from pathlib import Path

DISAGGREGATED = """\
pools:
  first: {role: prefill, replicas: 1}
  second: {role: decode, replicas: 3}
transfer: {bandwidth_gb_s: 10, bytes_per_token: 1000}
tune:
  objective: goodput
  num_trials: 8
  max_gpus: 4
  ranges:
    pools.first.replicas: {kind: int, min: 1, max: 4}
    pools.second.replicas: {kind: int, min: 1, max: 4}
    pools.second.scheduler.max_running_requests: {kind: choice, values: [2, 16]}
"""


def test_split_of_gpus_is_found_and_launched(simulate, inline, scenario_with):
    """Each pool has its own command, with its role."""
    done = simulate("tune", scenario_with(DISAGGREGATED), "--out", "out")
    assert done.code == 0
    found = json.loads(Path("out/results.json").read_text())
    splits = [
        [trial["settings"][f"pools.{name}.replicas"] for name in ("first", "second")]
        for trial in found["trials"]
    ]
    assert found["method"] == "grid"
    assert splits == [[1, 3], *([n, 4 - n] for n in (1, 1, 2, 2, 3, 3))]
    winner = found["trials"][found["winner"]]["settings"]
    first, second, *_ = found["launches"]
    assert "--disaggregation-mode prefill" in first["command"]
    rows = winner["pools.second.scheduler.max_running_requests"]
    assert f"--max-running-requests {rows}" in second["flags"]
    assert "--disaggregation-mode decode" in second["command"]
    assert f"pool second, {winner['pools.second.replicas']} server" in done.out

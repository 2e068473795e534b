"""What a policy learns of service is the same on a real server: its decisions are made again."""

import pytest
import yaml

from realrun.cli import main as realrun
from sim.cli import main as simulate

SCENARIO = {
    "name": "real",
    "model": "tiny",
    "latency": {
        "kind": "linear", "step_s": 0.001, "per_prefill_token_s": 0, "per_decode_request_s": 0,
        "per_context_token_s": 0,
    },
    "workload": {
        "kind": "mix",
        "parts": [
            {
                "tenant": tenant,
                "workload": {
                    "kind": "synthetic",
                    "num_requests": 12,
                    "arrivals": {"kind": "constant", "rate_rps": 400},
                    "prompt_tokens": {"kind": "uniform", "min": 4, "max": 40},
                    "output_tokens": {"kind": "uniform", "min": 2, "max": 9},
                },
            }
            for tenant in ("red", "blue")
        ],
    },
    "scheduler": {"max_total_tokens": 160, "max_running_requests": 4, "context_length": 128},
}  # fmt: skip


@pytest.mark.parametrize(
    "rule",
    [
        {"schedule_policy": "vtc:VirtualTokenCounter"},
        {"schedule_policy": "dlpm:DeficitLongestPrefixMatch"},
        {"admission": "past_future:PastFuture", "clip_max_new_tokens": 1},
    ],
    ids=lambda rule: next(iter(rule.values())),
)
def test_real_server_decides_as_the_simulator(rule, tmp_path, capsys):
    path, log = tmp_path / "real.yaml", tmp_path / "log.jsonl.gz"
    scenario = {**SCENARIO, "scheduler": {**SCENARIO["scheduler"], **rule}}
    path.write_text(yaml.safe_dump(scenario), encoding="utf-8")
    assert realrun(["run", str(path), "--device", "cpu", "--log", str(log)]) == 0
    assert simulate(["compare", str(log), str(path)]) == 0
    assert "are decided the same again" in capsys.readouterr().out

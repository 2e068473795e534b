"""What docs/how-to/measured.md says of our vLLM servers: predicted, with nothing fitted."""

import json
from pathlib import Path

import pytest

from calibrate import cli

REPOSITORY = Path(__file__).parents[3]
MEASURED = REPOSITORY / "data/measured"
H100 = "vllm-0.26-h100-llama-3.1-8b"
H200 = "vllm-0.26-h200-llama-3.1-8b"
MOE = "vllm-0.26-h200-qwen3-30b-a3b"
ON_H200 = ("latency.system=h200_sxm", "scheduler.num_gpu_blocks_override=2048")
OF_MOE = (
    "latency.system=h200_sxm", "scheduler.num_gpu_blocks_override=8192",
    "model=Qwen/Qwen3-30B-A3B",
)  # fmt: skip
SCENARIO = REPOSITORY / "scenarios/validation/vllm-0.26-h100-llama-3.1-8b.yaml"


@pytest.mark.parametrize(
    ("server", "load", "changes", "errors_pct"),
    [
        (H100, "rate4", (), (22.00, 2.58, 3.76)),
        (H100, "rate12", (), (5.25, 6.68, 6.60)),
        (H100, "rate20", (), (-11.34, 2.45, 1.86)),
        (H100, "burst", (), (-17.73, 3.44, -5.13)),
        (H100, "clients64", (), (-12.93, 18.99, 16.63)),
        (H100, "prefixes", (), (52.18, 4.01, 6.76)),
        (H200, "rate12", ON_H200, (18.7, 17.9, 17.7)),
        (H200, "prefixes", ON_H200, (40.3, 9.8, 17.5)),
        (H200, "agents", ON_H200, (61.1, 21.8, 25.3)),
        (MOE, "rate12", OF_MOE, (-55.8, -48.9, -48.6)),
        (MOE, "clients64", OF_MOE, (-16.1, -19.8, -19.8)),
        (MOE, "prefixes", OF_MOE, (-10.9, -10.6, -9.8)),
        (MOE, "burst", OF_MOE, (-15.9, -5.6, -11.1)),
    ],
)
def test_errors_of_the_means(server, load, changes, errors_pct, capsys):
    measured = MEASURED / server / load / "measured.jsonl.gz"
    workload = f"workload.path={MEASURED / server / load / 'workload.jsonl.gz'}"
    sets = [part for change in (workload, *changes) for part in ("--set", change)]
    command = ["validate", str(SCENARIO), str(measured), *sets, "--format", "json"]
    assert cli.main(command) == 0
    latencies = json.loads(capsys.readouterr().out)["latencies"]
    found = [latencies[name]["mean_ms"]["error_pct"] for name in ("ttft", "tpot", "latency")]
    assert found == pytest.approx(errors_pct, abs=0.06)

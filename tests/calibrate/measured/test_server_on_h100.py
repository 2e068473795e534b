"""What docs/how-to/measured.md says of a vLLM server on an H100: predicted, with nothing fitted."""

import json
from pathlib import Path

import pytest

from calibrate import cli

REPOSITORY = Path(__file__).parents[3]
RUN = REPOSITORY / "data/measured/vllm-0.26-h100-llama-3.1-8b"
SCENARIO = REPOSITORY / "scenarios/validation/vllm-0.26-h100-llama-3.1-8b.yaml"


@pytest.mark.parametrize(
    ("load", "errors_pct"),
    [
        ("rate4", (22.00, 2.58, 3.76)),
        ("rate12", (5.25, 6.68, 6.60)),
        ("rate20", (-11.34, 2.45, 1.86)),
        ("burst", (-17.73, 3.44, -5.13)),
        ("clients64", (-12.93, 18.99, 16.63)),
        ("prefixes", (52.18, 4.01, 6.76)),
    ],
)
def test_errors_of_the_means(load, errors_pct, capsys):
    measured = RUN / load / "measured.jsonl.gz"
    workload = f"workload.path={RUN / load / 'workload.jsonl.gz'}"
    command = ["validate", str(SCENARIO), str(measured), "--set", workload, "--format", "json"]
    assert cli.main(command) == 0
    latencies = json.loads(capsys.readouterr().out)["latencies"]
    found = [latencies[name]["mean_ms"]["error_pct"] for name in ("ttft", "tpot", "latency")]
    assert found == pytest.approx(errors_pct, abs=0.01)

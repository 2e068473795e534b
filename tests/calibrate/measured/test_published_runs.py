"""Three published runs of real vLLM servers, from their folders to the errors in measured.md."""

import json
from pathlib import Path

import pytest

from calibrate import cli as calibrate_cli
from sim import cli as simulate_cli

REPOSITORY = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("name", "errors_pct"),
    [
        # TTFT, TPOT, latency: of the mean, and the mean error of a request.
        ("rtx4090-llama-3.1-8b", [(0.31, 0.37), (-0.32, 1.80), (0.20, 0.37)]),
        ("rtxpro6000-qwen3-32b", [(-0.03, 0.54), (-0.36, 0.73), (-0.19, 0.30)]),
        ("rtxpro6000-qwen3-30b-a3b", [(0.97, 16.81), (0.90, 1.09), (0.92, 0.98)]),
    ],
)
def test_host_time_of_100_requests_predicts_the_other_200(name, errors_pct, tmp_path, capsys):
    folder = REPOSITORY / f"data/measured/vllm-0.19-{name}"
    template = REPOSITORY / f"scenarios/validation/vllm-0.19-{name}.yaml"
    command = ["import", str(folder), "--out", str(tmp_path / "run"), "--template", str(template)]
    assert simulate_cli.main(command) == 0
    run = [str(tmp_path / "run" / file) for file in ("scenario.yaml", "measured.jsonl.gz")]
    host = str(tmp_path / "host.json")
    fit = ["fit", run[1], "--scenario", run[0], "--first", "100", "-o", host]
    assert calibrate_cli.main(fit) == 0
    capsys.readouterr()
    others = ["--set", f"latency.host={host}", "--skip", "100", "--format", "json"]
    assert calibrate_cli.main(["validate", *run, *others]) == 0
    judged = json.loads(capsys.readouterr().out)["latencies"]
    found = [
        (judged[latency]["mean_ms"]["error_pct"], judged[latency]["request_error_pct"])
        for latency in ("ttft", "tpot", "latency")
    ]
    assert found == [pytest.approx(pair, abs=0.01) for pair in errors_pct]

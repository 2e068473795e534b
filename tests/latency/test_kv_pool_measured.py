"""KV pools of two vLLM servers on an H100, and what is derived for them."""

import json
import re
from pathlib import Path

import pytest

from sim.scenario.load import load_scenario
from tests.support.scheduler_settings import build_scheduler_config

REPOSITORY = Path(__file__).parents[2]
MEASURED = REPOSITORY / "data/measured"
SCENARIO = REPOSITORY / "scenarios/validation/vllm-0.26-h100-llama-3.1-8b.yaml"


def num_gpu_blocks(*overrides):
    scenario = load_scenario(SCENARIO, overrides).scenario
    return build_scheduler_config(scenario, base_dir=SCENARIO.parent).num_gpu_blocks


@pytest.fixture(scope="module")
def measured():
    settings = json.loads((MEASURED / "vllm-0.26-h100-llama-3.1-8b/settings.json").read_text())
    start = (MEASURED / "vllm-0.26-h100-qwen3-30b-a3b.start.log").read_text(encoding="utf-8")
    tokens = re.search(r"GPU KV cache size: ([\d,]+) tokens", start)
    return {
        "llama-3.1-8b": settings["cache_config"]["num_gpu_blocks"],
        "Qwen/Qwen3-30B-A3B": int(tokens[1].replace(",", "")) // 16,
    }


@pytest.mark.parametrize(
    ("model", "error_pct"), [("llama-3.1-8b", -3.92), ("Qwen/Qwen3-30B-A3B", -0.37)]
)
def test_pool_beside_activations_is_near_the_servers(model, error_pct, measured):
    """Kind aiconfigurator counts what vLLM measures when it starts."""
    pytest.importorskip("aiconfigurator_core.sdk.engine")
    derived = num_gpu_blocks(f"model={model}")
    assert 100 * (derived / measured[model] - 1) == pytest.approx(error_pct, abs=0.01)


@pytest.mark.parametrize(
    ("model", "error_pct"), [("llama-3.1-8b", 3.77), ("Qwen/Qwen3-30B-A3B", 34.86)]
)
def test_pool_beside_weights_is_an_upper_bound(model, error_pct, measured):
    """Other kinds count the weights alone; a server keeps 2.1 and 4.3 GiB for more than that."""
    others = ("latency={kind: roofline}", "hardware=h100-sxm", "host=null")
    derived = num_gpu_blocks(f"model={model}", *others)
    assert 100 * (derived / measured[model] - 1) == pytest.approx(error_pct, abs=0.01)

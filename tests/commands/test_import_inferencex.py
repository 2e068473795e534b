"""`simulate import` of an aggregate of InferenceX: a scenario of the server and its clients."""

import json
from pathlib import Path

import pytest
import yaml

from sim.commands.import_results import read_source
from sim.core.errors import InputError
from sim.workload.results.model import ReadOptions
from tests.support.client_results import inferencex


def written(**changes):
    """agg.json with other values; None leaves a key out."""
    row = {key: value for key, value in (inferencex() | changes).items() if value is not None}
    Path("agg.json").write_text(json.dumps(row, indent=2), encoding="utf-8")
    return "agg.json"


def scenario_of(simulate, *options, **changes):
    ended = simulate("import", written(**changes), "--out", "out", *options)
    assert ended.code == 0, ended.err
    return yaml.safe_load(Path("out/scenario.yaml").read_text("utf-8"))


def test_a_scenario_of_server_and_clients(simulate):
    """Which can be run at once; what was measured is above it, and printed."""
    ended = simulate("import", written(), "--out", "out")
    assert ended.code == 0
    assert [path.name for path in Path("out").iterdir()] == ["scenario.yaml"]
    text = Path("out/scenario.yaml").read_text("utf-8")
    data = yaml.safe_load(text)
    assert data["workload"] == {
        "kind": "bench", "client": "inferencex", "num_prompts": 20, "input_len": 64,
        "output_len": 16, "range_ratio": 0.8, "seed": 0, "warmup_requests": 4, "max_concurrency": 2,
    }  # fmt: skip
    assert data["scheduler"]["family"] == "vllm"
    assert data["latency"] | {"system": "h200_sxm", "tp": 1} == data["latency"]
    assert "mean_ttft_ms 150.5" in " ".join(text.replace("# ", "").split())
    assert "vLLM 0.25.1: rules are those of 0.19.0" in text
    lines = dict(line.rsplit(maxsplit=1) for line in ended.out.splitlines() if "  " in line)
    assert lines["mean_tpot_ms"] == "25.00"
    assert lines["output_tput_per_gpu (tokens/s)"] == "12,000"
    assert simulate("run", "out/scenario.yaml").code == 0


@pytest.mark.parametrize(
    ("changes", "latency"),
    [
        ({"framework": "vllm", "dp_attention": "true"}, {"dp": 8, "tp": 1, "moe_ep": 8}),
        ({"framework": "vllm", "dp_attention": "false"}, {"tp": 8, "moe_ep": 8}),
        ({"framework": "sglang", "dp_attention": "true"}, {"dp": 8, "tp": 1, "moe_ep": 8}),
        ({"framework": "sglang", "dp_attention": "false"}, {"tp": 8, "moe_ep": 8}),
    ],
)
def test_parallelism(simulate, changes, latency):
    image = {"vllm": "vllm/vllm-openai:v0.25.1", "sglang": "lmsysorg/sglang:v0.5.9-cu130"}
    found = scenario_of(
        simulate, model="deepseek-ai/DeepSeek-R1-0528", tp=8, ep=8, hw="h200-dgxc",
        image=image[changes["framework"]], **changes,
    )["latency"]  # fmt: skip
    assert found == {
        "kind": "aiconfigurator", "system": "h200_sxm", "backend": changes["framework"], **latency,
    }  # fmt: skip


def test_one_of_several_is_chosen(simulate, refused_bare):
    """agg_bmk.json is a list."""
    rows = [inferencex(), inferencex() | {"conc": 7}]
    Path("agg.json").write_text(json.dumps(rows), encoding="utf-8")
    assert "holds 2 results: say which with --line N" in refused_bare(
        "import", "agg.json", "--out", "out"
    )
    assert "--line 3: it has 2 results" in refused_bare(
        "import", "agg.json", "--out", "out", "--line", "3"
    )
    assert simulate("import", "agg.json", "--out", "out", "--line", "2").code == 0
    data = yaml.safe_load(Path("out/scenario.yaml").read_text("utf-8"))
    assert data["workload"]["max_concurrency"] == 7


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"framework": "trt"}, "framework: trt: only vllm and sglang are simulated"),
        ({"hw": "mi355x"}, "hw: mi355x: is none of the known GPUs: h100, h200, b200"),
        ({"disagg": True}, "disagg: prefill and decode servers: import their command lines"),
        ({"spec_decoding": "mtp"}, "spec_decoding: mtp: how many tokens are drafted is not in"),
        ({"dcp_size": 2}, "dcp_size: is above 1, which is not simulated"),
        ({"conc": 0}, "conc: must be above 0"),
        ({"isl": None}, "isl: missing"),
        ({"model": "a b"}, "model: is no name"),
        ({"model": "no/such-model"}, "agg.json: model: unknown model 'no/such-model'"),
        ({"mean_ttft": "fast"}, 'mean_ttft: "fast" is not a finite number'),
    ],
)
def test_what_is_not_simulated_is_named(refused_bare, changes, reason):
    assert reason in refused_bare("import", written(**changes), "--out", "out")
    assert not Path("out").exists()


@pytest.mark.parametrize("option", [("--template", "x.yaml"), ("--draw-arrivals", "1")])
def test_options_of_requests_are_refused(refused_bare, option):
    written()
    line = refused_bare("import", "agg.json", "--out", "out", *option)
    assert line.endswith(f"{option[0]}: does not go with results of InferenceX")


def test_aggregates_are_no_list_of_requests():
    """Which other commands need."""
    with pytest.raises(InputError, match="has aggregates, not requests"):
        read_source(Path(written()), None, ReadOptions())

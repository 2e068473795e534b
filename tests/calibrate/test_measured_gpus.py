"""The measurements of a real H100 and a real H200 that ship with the project."""

import json
import tarfile
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from calibrate.cli import main
from calibrate.rebuild import rebuild
from calibrate.stages import replay_decisions
from sim.cli import main as simulate

REPOSITORY = Path(__file__).parents[2]
DATA = REPOSITORY / "data"
SCENARIOS = REPOSITORY / "scenarios"
# Steps of the real runs in each bundle. The suite decides the smaller ones again.
STEPS = {
    "h100/runs-gpt2-high.tar": 42_372,
    "h100/runs-gpt2-pack.tar": 2_186,
    "h100/runs-llama-3.1-8b-half.tar": 11_126,
    "h100/runs-llama-3.1-8b-high.tar": 14_555,
    "h100/runs-qwen2.5-0.5b-half.tar": 38_654,
    "h100/runs-qwen2.5-0.5b-high.tar": 25_580,
    "h200/runs-gpt2-pack.tar": 2_186,
    "h200/runs-llama-3.1-8b-half.tar": 14_277,
    "h200/runs-llama-3.1-8b-high.tar": 18_941,
    "h200/runs-llama-3.1-8b-small.tar": 3_131,
    "h200/runs-llama-3.1-8b-vllm-small.tar": 5_758,
    "h200/runs-llama-3.1-8b-vllm.tar": 10_694,
    "h200/runs-qwen2.5-0.5b-high.tar": 33_818,
}
BUNDLES = [
    pytest.param(name, marks=pytest.mark.long if steps > 12_000 else ())
    for name, steps in STEPS.items()
]
NGRAM = "{method: ngram, num_speculative_tokens: 4, prompt_lookup_min: 2, prompt_lookup_max: 4}"


def unpacked(bundle, folder):
    with tarfile.open(DATA / bundle) as tar:
        tar.extractall(folder, filter="data")
    return sorted(map(str, (folder / Path(bundle).stem).iterdir()))


def printed(*arguments, command=main):
    with redirect_stdout(StringIO()) as out:
        assert command([*map(str, arguments)]) == 0
    return out.getvalue()


@pytest.mark.parametrize(
    ("gpu", "bundle"), [("h100", "runs-gpt2-high.tar"), ("h200", "runs-gpt2-pack.tar")]
)
def test_shipped_profile_is_the_fit_of_the_shipped_logs(tmp_path, gpu, bundle):
    """A second fit has the times of the first; the last digits may differ between machines."""
    logs = unpacked(f"{gpu}/{bundle}", tmp_path)
    (run,) = (log for log in logs if Path(log).name in ("high-fcfs-1.jsonl.gz", "fifo-1.jsonl.gz"))
    made = tmp_path / "gpt2.json"
    printed("fit", DATA / gpu / "profile-gpt2.jsonl.gz", run, "-o", made)
    ours, theirs = (json.loads(path.read_text()) for path in (made, DATA / gpu / "gpt2.json"))
    for mode, model in theirs["modes"].items():
        terms = {(term["term"], term["knee"]): term["ns"] for term in ours["modes"][mode]["terms"]}
        for term in model["terms"]:
            assert terms[term["term"], term["knee"]] == pytest.approx(term["ns"], rel=1e-3)
    assert ours["graph_sizes"] == theirs["graph_sizes"]


@pytest.mark.parametrize("bundle", BUNDLES)
def test_real_runs_are_decided_again(tmp_path, bundle):
    """SGLang's and vLLM's scheduler, with and without overlap, in roomy and in small pools."""
    num_steps = 0
    for log in unpacked(bundle, tmp_path):
        run = rebuild(Path(log), SCENARIOS / "studies")
        assert replay_decisions(run) is None, log
        num_steps += len(run.recorded.steps)
    assert num_steps == STEPS[bundle]


@pytest.mark.parametrize(
    ("log", "change", "num_steps"),
    [
        ("plain-1", (), "2,390"),
        ("drafts-1", ("--set", f"scheduler.speculative_config={NGRAM}"), "1,232"),
    ],
)
def test_runs_with_the_models_own_tokens_are_decided_again(tmp_path, log, change, num_steps):
    """Greedy outputs of Llama-3.1-8B on the H200, without drafts and with what n-grams found."""
    unpacked("h200/runs-llama-3.1-8b-greedy.tar", tmp_path)
    path = tmp_path / "runs-llama-3.1-8b-greedy" / f"{log}.jsonl.gz"
    scenario = SCENARIOS / "calibration" / "llama-3.1-8b-vllm.yaml"
    load = ("--set", "workload.num_requests=196", *change)
    text = printed("compare", path, scenario, *load, command=simulate)
    assert text.splitlines()[-1] == f"all {num_steps} steps are decided the same again"


def test_times_of_real_runs_follow(tmp_path):
    """The published packing experiment, served on the H100: its latencies."""
    logs = unpacked("h100/runs-gpt2-pack.tar", tmp_path)
    out = json.loads(
        printed("validate", DATA / "h100" / "gpt2.json", *logs, "--format", "json",
                "--base-dir", SCENARIOS / "studies")
    )  # fmt: skip
    assert {run["replay"] for case in out["cases"] for run in case["runs"]} == {"identical"}
    for case in out["cases"]:
        assert all(abs(error) < 0.2 for error in case["recorded"]["error_pct"].values() if error)
    fifo, pack = (case["real"]["mean"]["p99_ttft_ms"] for case in out["cases"])
    assert pack < 0.6 * fifo


@pytest.mark.long
def test_a_profile_fitted_to_sglangs_steps_times_vllms(tmp_path):
    """On the H200: TPOT of vLLM's scheduler, with the profile of single steps and of SGLang's."""
    logs = unpacked("h200/runs-llama-3.1-8b-vllm.tar", tmp_path)
    profile = DATA / "h200" / "llama-3.1-8b.json"
    out = json.loads(printed("validate", profile, *logs, "--skip", 20, "--format", "json"))
    errors = [case["profile"]["error_pct"] for case in out["cases"]]
    assert len(errors) == 3
    assert all(abs(of["mean_tpot_ms"]) < 4 and abs(of["mean_ttft_ms"]) < 6 for of in errors)

"""The measurements of a real H100 that ship with the project."""

import json
import tarfile
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from calibrate.cli import main

REPOSITORY = Path(__file__).parents[2]
H100 = REPOSITORY / "data" / "h100"


def unpacked(bundle, folder):
    with tarfile.open(H100 / bundle) as tar:
        tar.extractall(folder, filter="data")
    return sorted(map(str, (folder / Path(bundle).stem).iterdir()))


def printed(*arguments):
    with redirect_stdout(StringIO()) as out:
        assert main([*map(str, arguments)]) == 0
    return out.getvalue()


def test_shipped_profile_is_the_fit_of_the_shipped_logs(tmp_path):
    """A second fit has the times of the first; the last digits may differ between machines."""
    (first, *_) = unpacked("runs-gpt2-high.tar", tmp_path)
    run = first.replace("dfs-weight", "fcfs")
    made = tmp_path / "gpt2.json"
    printed("fit", H100 / "profile-gpt2.jsonl.gz", run, "-o", made)
    ours, theirs = (json.loads(path.read_text()) for path in (made, H100 / "gpt2.json"))
    for mode, model in theirs["modes"].items():
        terms = {(term["term"], term["knee"]): term["ns"] for term in ours["modes"][mode]["terms"]}
        for term in model["terms"]:
            assert terms[term["term"], term["knee"]] == pytest.approx(term["ns"], rel=1e-3)
    assert ours["graph_sizes"] == theirs["graph_sizes"]


def test_real_runs_are_decided_again_and_their_times_follow(tmp_path):
    """The published packing experiment, served on the H100: the same steps, and their latencies."""
    logs = unpacked("runs-gpt2-pack.tar", tmp_path)
    out = json.loads(
        printed("validate", H100 / "gpt2.json", *logs, "--format", "json",
                "--base-dir", REPOSITORY / "scenarios" / "studies")
    )  # fmt: skip
    assert {run["replay"] for case in out["cases"] for run in case["runs"]} == {"identical"}
    for case in out["cases"]:
        assert all(abs(error) < 0.2 for error in case["recorded"]["error_pct"].values() if error)
    fifo, pack = (case["real"]["mean"]["p99_ttft_ms"] for case in out["cases"])
    assert pack < 0.6 * fifo

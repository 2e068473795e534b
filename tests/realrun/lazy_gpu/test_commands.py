"""The first commands of `make gpu`, on a lazy GPU."""

import json

import pytest

from realrun.cli import main
from sim.runlog.run_log_file import read_run_log

CONFIG = {
    "model_type": "qwen2",
    "num_hidden_layers": 1,
    "hidden_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 96,
    "vocab_size": 97,
    "max_position_embeddings": 256,
}


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "m.json"
    path.write_text(json.dumps(CONFIG))
    return str(path)


def test_check_makes_every_comparison(gpu, model, capsys):
    """Plain transformers, fa2, fa3 and graphs, with kernels that `realrun kernels` has loaded.

    To compile a kernel takes minutes, so none may be left to a stage with a budget.
    """
    assert main(["kernels", "--model", model, "--device", "cuda"]) == 0
    loaded = list(gpu.loaded)
    assert any(name.endswith("_sm90") for name in loaded)
    assert main(["check", "--model", model, "--device", "cuda", "--page-size", "4"]) == 0
    assert gpu.loaded == loaded
    printed = capsys.readouterr().out
    assert "not made" not in printed
    for name in (
        "paged = plain transformers",
        "flashinfer fa2",
        "flashinfer fa3",
        "graphs = eager",
    ):
        assert name in printed


def test_profile_measures_behind_running_work(gpu, model, tmp_path):
    """A kernel that only waits runs before each measured step; the log names device and graphs."""
    out = tmp_path / "p.jsonl.gz"
    limits = ["--max-context", "32", "--max-rows", "2", "--repeats", "1"]
    command = ["profile", "--model", model, "--device", "cuda:0", "--out", str(out)]
    assert main([*command, *limits]) == 0
    log = read_run_log(out)
    assert log.meta["graph_sizes"] == [1, 2]
    assert log.fingerprint["attention"] == "flashinfer"
    assert {point["mode"] for point in log.points} == {"extend", "decode", "mixed"}
    names = [kind if kind != "launch" else name for kind, name in gpu.log]
    last_sleep = len(names) - 1 - names[::-1].index("sleep")
    step = names[last_sleep:]
    assert (step[1], step[-1]) == ("mark", "mark")
    assert "to device" not in [name for _, name in gpu.log[last_sleep:]]


def test_second_gpu_that_is_not_there_is_one_line(bare_gpu, model, capsys):
    """`cuda:1` is looked for, and named."""
    assert main(["check", "--model", model, "--device", "cuda:1"]) == 2
    assert "device cuda:1: torch finds 1 CUDA devices" in capsys.readouterr().err

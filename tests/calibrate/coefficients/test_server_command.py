"""What a launch command says of a server whose step times are to be fitted."""

from pathlib import Path

import pytest

from calibrate.coefficients.scenario import FitServerOptions, draft_scenario
from sim.commands.import_results import ReadSource
from sim.workload.results.model import ImportedRequest, ServerFacts


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve m --max-num-seqs 7 -sc.method ngram -sc.num_speculative_tokens 3",
        "sglang serve m --max-running-requests 7 --speculative-algorithm NEXTN",
    ],
)
def test_drafts_are_left_out(tmp_path, command):
    """A fitted scenario gives each request one token a step; other settings stay."""
    request = ImportedRequest(rid="0", arrival_ns=0, prompt_tokens=9, output_tokens=2)
    source = ReadSource("measured", [request], ServerFacts(), ())
    options = FitServerOptions(kind=None, template=None, server=command, hardware="h100_sxm")
    scheduler = draft_scenario([source], options, Path(tmp_path)).data["scheduler"]
    assert 7 in scheduler.values()
    assert not [key for key in scheduler if key.startswith("speculative")]


def drafted(command, facts, out):
    request = ImportedRequest(rid="0", arrival_ns=0, prompt_tokens=9, output_tokens=2)
    source = ReadSource("measured", [request], facts, ())
    options = FitServerOptions(kind=None, template=None, server=command, hardware="h100_sxm")
    return draft_scenario([source], options, out)


@pytest.mark.parametrize(
    ("command", "key", "size"),
    [
        ("vllm serve meta-llama/Llama-3.1-8B", "num_gpu_blocks_override", 28_000),
        (
            "vllm serve meta-llama/Llama-3.1-8B --gpu-memory-utilization 0.5",
            "num_gpu_blocks_override", 10_600,
        ),
        # Half of its layers have windows: two groups, each with a block for the same tokens.
        ("vllm serve openai/gpt-oss-20b", "num_gpu_blocks_override", 153_000),
        ("sglang serve meta-llama/Llama-3.1-8B", "max_total_tokens", 446_000),
        (
            "sglang serve meta-llama/Llama-3.1-8B --mem-fraction-static 0.5",
            "max_total_tokens", 204_000,
        ),
    ],
)  # fmt: skip
def test_pool_is_what_the_flags_leave(tmp_path, command, key, size):
    """Within 5 %; the share of memory is not given beside it, which would be refused."""
    draft = drafted(command, ServerFacts(), tmp_path)
    scheduler = draft.data["scheduler"]
    assert scheduler[key] == pytest.approx(size, rel=0.05)
    assert not {"gpu_memory_utilization", "mem_fraction_static"} & scheduler.keys()
    [hint] = [hint.text for hint in draft.hints if key in hint.text]
    assert hint.startswith(f"{key} is what ")
    assert "PLACEHOLDER" not in hint


def test_measured_pool_is_kept(tmp_path):
    facts = ServerFacts(("vllm",), "", {"num_gpu_blocks_override": 1234})
    draft = drafted("vllm serve meta-llama/Llama-3.1-8B", facts, tmp_path)
    assert draft.data["scheduler"]["num_gpu_blocks_override"] == 1234


def test_pool_of_an_unknown_model_is_a_placeholder(tmp_path):
    draft = drafted("vllm serve somebody/model", ServerFacts(), tmp_path)
    assert draft.data["scheduler"]["num_gpu_blocks_override"] < 100
    assert any("PLACEHOLDER" in hint.text for hint in draft.hints)

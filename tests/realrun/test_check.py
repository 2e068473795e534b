"""`realrun check` end to end on the CPU, and that it finds broken attention."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from realrun.attention.choose import build_attention
from realrun.batches.batch_plan import BatchPlan
from realrun.check.check_case import make_check_case, make_prompts
from realrun.check.comparison import LogitComparison, max_error
from realrun.check.comparisons import (
    EVERYWHERE,
    chunked_against_whole,
    greedy_against_plain,
    mixed_against_separate,
    paged_against_plain,
    runners_agree,
    shared_against_recomputed,
)
from realrun.cli import main
from realrun.model.paged_model import load_model
from realrun.runner.model_runner import ModelRunner

PAGE_SIZE = 4
Sabotage = Callable[[BatchPlan], BatchPlan]


class SabotagedAttention:
    """Reference attention that changes the plan that it is given."""

    def __init__(self, case, sabotage):
        self._backend = build_attention("reference", case.model, case.kv, case.model.device)
        self._sabotage = sabotage

    def plan(self, plan):
        return self._backend.plan(self._sabotage(plan))


def runner_of(case, sabotage=lambda plan: plan):
    return ModelRunner(case.model, case.kv, SabotagedAttention(case, sabotage))


def swap_pages(plan):
    """Rows of several pages read their first page from the second."""
    indices = plan.kv_indices.copy()
    starts, ends = plan.kv_indptr[:-1], plan.kv_indptr[1:]
    several = ends - starts > 1
    indices[starts[several]] = plan.kv_indices[starts[several] + 1]
    return replace(plan, kv_indices=indices)


def forget_first_chunk(plan):
    """Rows with earlier tokens read their last page in place of every page."""
    if (plan.query_lens == plan.kv_lens).all():
        return plan
    last = plan.kv_indices[plan.kv_indptr[1:] - 1]
    return replace(plan, kv_indices=np.repeat(last, np.diff(plan.kv_indptr)))


def mix_rows_up(plan):
    """Each row reads the first page of the row before it."""
    indices, starts = plan.kv_indices.copy(), plan.kv_indptr[:-1]
    indices[starts] = np.roll(indices[starts], 1)
    return replace(plan, kv_indices=indices)


@pytest.fixture(scope="module")
def case(paged_models):
    return make_check_case(paged_models["llama"], PAGE_SIZE)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gpt2"])
def test_check_all_architectures_agree(config_paths, architecture, capsys):
    """Every comparison that a CPU allows is made and within tolerance; the others say why not."""
    model = str(config_paths[architecture])
    assert main(["check", "--model", model, "--device", "cpu", "--page-size", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.endswith(" ok") for line in lines) == len(EVERYWHERE)
    assert sum("not made: needs a CUDA device" in line for line in lines) == 3
    assert "FAIL" not in "".join(lines)


def test_check_json_names_each_comparison(config_paths, capsys):
    """One object: where it ran, what was compared, how far apart, and whether that is fine."""
    arguments = ["--model", str(config_paths["gpt2"]), "--device", "cpu", "--format", "json"]
    assert main(["check", *arguments, "--dtype", "bfloat16"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["ok"] is True
    assert result["dtype"] == "bfloat16"
    made = [row for row in result["checks"] if row["error"] is not None]
    assert len(made) == len(EVERYWHERE)
    assert all(row["ok"] and row["error"] <= row["tolerance"] for row in made)
    assert {row["ok"] for row in result["checks"] if row["error"] is None} == {None}


def test_check_failure_is_exit_code_1(config_paths, capsys, monkeypatch):
    """A comparison that fails is marked, and makes the command fail."""
    broken = LogitComparison("broken", 2.0, 1.0)
    monkeypatch.setattr("realrun.check.run_checks.run_checks", lambda *_, **__: [broken])
    assert main(["check", "--model", str(config_paths["gpt2"]), "--device", "cpu"]) == 1
    assert "FAIL" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--model", "gpt-nonexistent"], "gpt-nonexistent"),
        (["--page-size", "129"], "page_size 129"),
        (["--attention", "flashinfer"], "attention flashinfer: needs a CUDA device"),
    ],
)
def test_check_bad_input_is_one_line(config_paths, capsys, arguments, complaint):
    """What cannot be checked is refused with one line and exit code 2."""
    model = [] if "--model" in arguments else ["--model", str(config_paths["gpt2"])]
    assert main(["check", "--device", "cpu", *model, *arguments]) == 2
    message = capsys.readouterr().err
    assert complaint in message
    assert message.count("\n") == 1


@pytest.mark.parametrize(
    ("compare", "sabotage"),
    [
        (paged_against_plain, swap_pages),
        (paged_against_plain, mix_rows_up),
        (chunked_against_whole, forget_first_chunk),
        (shared_against_recomputed, forget_first_chunk),
        (mixed_against_separate, mix_rows_up),
        (greedy_against_plain, forget_first_chunk),
    ],
)
def test_comparisons_wrong_pages_are_noticed(case, compare, sabotage):
    """Reading the wrong pages fails the comparison that is about them, by a wide margin."""
    assert compare(case, runner_of(case)).ok
    wrong = compare(case, runner_of(case, sabotage))
    assert not wrong.ok
    assert wrong.error is not None
    assert not wrong.error < 100 * wrong.tolerance


def test_comparisons_wrong_pages_are_noticed_in_bfloat16(config_paths):
    """Rounding to eight bits does not hide them."""
    model = load_model(str(config_paths["llama"]), device="cpu", dtype="bfloat16")
    case = make_check_case(model, PAGE_SIZE)
    assert paged_against_plain(case, runner_of(case)).ok
    for sabotage in (swap_pages, mix_rows_up):
        assert not paged_against_plain(case, runner_of(case, sabotage)).ok
    right, wrong = runner_of(case), runner_of(case, forget_first_chunk)
    assert runners_agree(case, "itself", right, right).ok
    assert not runners_agree(case, "another", wrong, right).ok


@pytest.mark.parametrize("page_size", [1, 16, 128])
def test_comparisons_hold_at_every_page_size(paged_models, page_size):
    """Pages of one token, and pages longer than most prompts."""
    case = make_check_case(paged_models["qwen3"], page_size)
    for compare in EVERYWHERE:
        comparison = compare(case, runner_of(case))
        assert comparison.ok, comparison


def test_prompts_fit_the_model():
    """A short context cuts prompts down, room left to decode."""
    lengths = [len(prompt) for prompt in make_prompts(128, 100, 50).values()]
    assert min(lengths) == 1
    assert max(lengths) <= 100 - 8


def test_comparison_nan_is_not_ok():
    """A NaN on either side fails, though it compares with nothing."""
    error = max_error(torch.tensor([1.0, float("nan")]), torch.ones(2))
    assert not LogitComparison("nan", error, 1.0).ok

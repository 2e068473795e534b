"""The section `acceptance`, speculative decoding in the scheduler's, and what does not fit."""

import pytest

from sim.core.errors import InputError
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text

_SECTIONS = """\
scheduler:
  family: vllm
  num_gpu_blocks_override: 257
  speculative_config: {method: eagle, num_speculative_tokens: 3}
acceptance: {mean_length: 2.5}
"""
_ROOFLINE = ("latency={kind: roofline}", "model=qwen3-0.6b", "hardware=h200-sxm")


@pytest.fixture
def text(valid_text):
    """The valid scenario with speculative decoding; the sections begin on line 15."""
    return valid_text[: valid_text.index("scheduler:")] + _SECTIONS


def built(text, *overrides, base_dir=None):
    more = {} if base_dir is None else {"base_dir": base_dir}
    return build(load_scenario_text(text, overrides, name="study.yaml", **more))


@pytest.mark.parametrize(
    "acceptance",
    ["{mean_length: 1}", "{by_position: [1, 0.5, 0]}", "{rate: 1}", "{mean_length: 4.0}"],
)
def test_acceptance_reaches_the_scheduler(text, acceptance):
    speculation = built(text, f"acceptance={acceptance}").scheduler.speculation
    assert (speculation.method, speculation.num_tokens) == ("eagle", 3)
    most = 0 if acceptance == "{mean_length: 1}" else 1
    assert speculation.acceptance.num_accepted("r", 1, 1, 1) == most


def test_acceptance_may_be_recorded(text, tmp_path):
    (tmp_path / "counts.jsonl").write_text('{"rid": "r", "accepted": [2, 0]}\n', encoding="utf-8")
    config = built(text, "acceptance={recorded: counts.jsonl}", base_dir=tmp_path).scheduler
    assert config.speculation.acceptance.num_accepted("r", 1, 1, 3) == 2
    assert config.as_dict()["speculative_config"]["num_speculative_tokens"] == 3


def test_a_lookup_may_find_fewer_drafts(text):
    section = "acceptance={rate: 1, proposed: [1, 0, 0, 0]}"
    config = built(text, "scheduler.speculative_config.method=ngram", section).scheduler
    assert config.speculation.acceptance.num_proposed("r", 1, 1, 3) == 0
    shown = config.as_dict()["speculative_config"]
    assert (shown["prompt_lookup_min"], shown["prompt_lookup_max"]) == (5, 5)
    most = "scheduler.speculative_config.prompt_lookup_max=3"
    config = built(text, "scheduler.speculative_config.method=ngram", most).scheduler
    assert (config.speculation.lookup_min, config.speculation.lookup_max) == (3, 3)


NGRAM = "scheduler.speculative_config.method=ngram"
_STAGES = (*_ROOFLINE[1:], "latency={kind: roofline, drafter_share: 0, pp: 2}")
# (overrides, the end of the error line)
SPOILED = [
    (["acceptance=null"], "acceptance is required with speculative decoding"),
    (["acceptance={}"], "give exactly one of rate, mean_length, by_position, recorded"),
    (["acceptance={mean_length: 5}"], "acceptance.mean_length: 5 is above 1 + 3 draft tokens"),
    (["acceptance={by_position: [0.5]}"],
     "acceptance.by_position: has 1 values for 3 draft tokens"),
    (["acceptance={rate: 1, proposed: [0.5, 0, 0, 0.5]}"],
     "acceptance.proposed: is for method ngram alone"),
    ([NGRAM, "acceptance={rate: 1, proposed: [0.5, 0.5]}"],
     "acceptance.proposed: has 2 shares for 0 to 3 draft tokens"),
    ([NGRAM, "acceptance={rate: 1, proposed: [0.5, 0, 0, 0]}"],
     "shares must add up to 1, got 0.5"),
    ([NGRAM, "acceptance={recorded: x.jsonl, proposed: [0.5, 0, 0, 0.5]}"],
     "recorded says what each step proposed; leave proposed out"),
    (["scheduler.speculative_config.prompt_lookup_min=4",
      "scheduler.speculative_config.prompt_lookup_max=3"],
     "prompt_lookup_min 4 is above prompt_lookup_max 3"),
    (["acceptance={by_position: [0.5, 2, 0]}"], "must be at most 1, got 2"),
    (["scheduler.version='0.14.0'"], "speculative decoding of vLLM 0.14.0 is not simulated"),
    ([NGRAM, "scheduler.async_scheduling=true", "scheduler.version='0.19.0'"],
     "true with drafts of method ngram: VllmConfig.__post_init__, config/vllm.py"),
    (["scheduler.long_prefill_token_threshold=3"],
     "long_prefill_token_threshold 3 is less than the 4 tokens of a row with drafts"),
    (["scheduler.speculative_config.method=draft_model", "scheduler.max_num_batched_tokens=128"],
     "128 leaves none beside the tokens of the draft model, max_num_seqs 128"),
    ([*_STAGES, "scheduler.version='0.19.0'"],
     "latency.pp: above 1 is not simulated with speculative decoding of vLLM 0.19.0"),
    ([*_STAGES, "scheduler.async_scheduling=false"],
     "rows get drafts before their token is known (prepare_inputs, v1/worker/gpu/model_runner.py)"),
    (_ROOFLINE, "latency.drafter_share: is required with this method of speculative decoding"),
    (["latency={kind: profile, path: example/tiny-cpu}"],
     "latency.drafter_share: is required with this method of speculative decoding"),
    (["scheduler.speculative_config.method=draft_model", "model=qwen3-0.6b",
      "latency={kind: aiconfigurator, system: h200_sxm, backend: vllm}"],
     "kind aiconfigurator knows drafts of layers and n-grams, not those of a model"),
]  # fmt: skip


@pytest.mark.parametrize(("overrides", "line"), SPOILED)
def test_acceptance_that_does_not_fit_is_one_line(text, overrides, line):
    with pytest.raises(InputError) as caught:
        built(text, *overrides)
    assert str(caught.value).endswith(line)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("", ": has no lines"),
        ("[1]", "counts.jsonl:1: not a JSON object"),
        ('{"rid": "r"}', ":1: needs a rid, and accepted, a list of counts"),
        ('\n{"rid": "r", "accepted": [-1]}', ":2: accepted has something else than counts"),
        ('{"rid": "r", "accepted": [1], "proposed": []}', ":1: proposed and accepted differ"),
        ('{"rid": "r", "accepted": [1], "proposed": [1]}', "which are for method ngram alone"),
        ('{"kind": "req", "rid": "r", "accepted_by_step": 3}', ":1: needs a rid, and accepted_by"),
    ],
)
def test_bad_recording_names_the_line(text, tmp_path, content, line):
    (tmp_path / "counts.jsonl").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=line):
        built(text, "acceptance={recorded: counts.jsonl}", base_dir=tmp_path)


def test_acceptance_without_drafts_is_not_used(text):
    """So a sweep can turn them on and off."""
    assert built(text, "scheduler.speculative_config=null").scheduler.speculation is None


def test_ngram_needs_no_drafter_and_schedules_no_step_ahead(text):
    method = "scheduler.speculative_config.method=ngram"
    assert not built(text, method, *_ROOFLINE).scheduler.async_scheduling
    assert built(text).scheduler.async_scheduling

"""The keys of speculative decoding in family sglang: defaults, and what is refused in one line."""

from dataclasses import replace

import pytest

from sim.core.errors import InputError
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text

EAGLE = "speculative_algorithm: EAGLE"
NGRAM = "speculative_algorithm: NGRAM"
STANDALONE = "speculative_algorithm: STANDALONE"
_SCENARIO = """
name: drafts
acceptance: {{rate: 0.5}}
latency: {{kind: linear, step_s: 0.01, {latency}
          per_prefill_token_s: 0, per_decode_request_s: 0, per_context_token_s: 0}}
workload: {{kind: synthetic, num_requests: 1, arrivals: {{kind: poisson, rate_rps: 1}},
           prompt_tokens: {{kind: constant, value: 9}},
           output_tokens: {{kind: constant, value: 2}}}}
scheduler: {{max_total_tokens: 1000, {keys}}}
"""


def _config(keys, latency=""):
    return build(load_scenario_text(_SCENARIO.format(keys=keys, latency=latency))).scheduler


@pytest.mark.parametrize(
    ("keys", "passes", "verified"),
    [
        (EAGLE, 3, 4),
        ("speculative_algorithm: EAGLE3, speculative_num_steps: 5", 5, 6),
        # A chain of drafts has one for each pass, whatever the flag says.
        (
            f"{EAGLE}, speculative_num_steps: 2, speculative_num_draft_tokens: 8",
            2,
            3,
        ),
        (NGRAM, 12, 12),
        (f"{NGRAM}, speculative_num_draft_tokens: 4", 4, 4),
        (
            f"{NGRAM}, speculative_num_draft_tokens: 4, speculative_num_steps: 6",
            6,
            4,
        ),
    ],
)
def test_drafts_of_a_step(keys, passes, verified):
    """The last known token is one of the verified ones; logs name all three settings."""
    config = _config(keys)
    assert config.speculation.num_tokens == verified - 1
    settings = config.as_dict()
    assert settings["speculative_num_steps"] == passes
    assert settings["speculative_num_draft_tokens"] == verified


def test_fewer_requests_run_with_drafts_unless_told_otherwise():
    assert _config(NGRAM).max_running_requests == 48
    more = _config(f"{NGRAM}, max_running_requests: 64")
    assert more.max_running_requests == 64
    assert "speculative_algorithm" not in _config("page_size: 1").as_dict()


@pytest.mark.parametrize(
    ("keys", "latency", "reason"),
    [
        ("speculative_algorithm: DFLASH", "", "speculative_algorithm"),
        ("speculative_num_steps: 3", "", "speculative_num_steps needs speculative_algorithm"),
        (
            f"{EAGLE}, speculative_num_draft_tokens: 4",
            "",
            "speculative_num_draft_tokens needs speculative_num_steps",
        ),
        (f"{EAGLE}, speculative_eagle_topk: 4", "", "speculative_eagle_topk"),
        (f"{EAGLE}, version: 0.5.10", "", "with version 0.5.23 only"),
        (f"{NGRAM}, enable_mixed_chunk: true", "", "SGLang turns it off"),
        (NGRAM, "dp: 2,", "SGLang refuses NGRAM with latency.dp above 1: .*_handle_ngram"),
        (STANDALONE, "dp: 2,", "SGLang refuses STANDALONE with .*_handle_eagle_family"),
    ],
)
def test_drafts_that_are_not_simulated_are_refused(keys, latency, reason):
    with pytest.raises(InputError, match=reason):
        _config(keys, latency)


@pytest.mark.parametrize(
    ("keys", "role", "reason"),
    [
        (EAGLE, "both", "with stages only prefill servers draft .*check_pipeline_parallel_compat"),
        (EAGLE, "decode", "with stages only prefill servers draft"),
        (EAGLE, "prefill", None),
        ("speculative_algorithm: NEXTN", "prefill", None),
        ("speculative_algorithm: EAGLE3", "prefill", "only EAGLE drafts in a pipeline, not EAGLE3"),
        (NGRAM, "both", "only EAGLE drafts in a pipeline, not NGRAM"),
    ],
)
def test_drafts_with_stages_are_refused_as_sglang_refuses_them(keys, role, reason):
    built = build(load_scenario_text(_SCENARIO.format(keys=keys, latency="")))
    config = replace(built.scheduler, micro_batches=2)
    if reason is None:
        assert built.loaded.scenario.scheduler.with_role(config, role, None).role == role
        return
    with pytest.raises(InputError, match=reason):
        built.loaded.scenario.scheduler.with_role(config, role, None)


@pytest.mark.parametrize(("algorithm", "is_refused"), [("EAGLE3", False), ("NGRAM", True)])
def test_a_decode_server_with_a_prefix_cache_drafts_as_sglang_does(algorithm, is_refused):
    keys = f"speculative_algorithm: {algorithm}, disaggregation_decode_enable_radix_cache: true"
    built = build(load_scenario_text(_SCENARIO.format(keys=keys, latency="")))
    section = built.loaded.scenario.scheduler
    if is_refused:
        with pytest.raises(InputError, match=r"SGLang refuses NGRAM .*handle_speculative_decoding"):
            section.with_role(built.scheduler, "decode", None)
    else:
        assert not section.with_role(built.scheduler, "decode", None).disable_radix_cache

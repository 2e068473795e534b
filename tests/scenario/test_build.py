"""Building: scheduler settings, derived pools, and errors about what a scenario names."""

import json
from dataclasses import fields
from pathlib import Path

import pytest

from sim.core.errors import InputError
from sim.latency.architectures.model_key import load_model_shape
from sim.latency.hardware import load_hardware
from sim.latency.kinds.linear import LinearLatency
from sim.scenario.build import build
from sim.scenario.load import load_scenario, load_scenario_text
from sim.sglang.cache.tree.eviction import EvictionSettings
from sim.sglang.config import PackSettings, StaticSettings, UserRules
from sim.sglang.scheduler.waiting.fairness import AgingTokens, FairnessT, ForceFifo, KLpm
from sim.sglang.section.scheduler import SglangSection
from sim.sglang.settings import SchedulerSettings
from tests.support.random_settings import other_values
from tests.support.scheduler_settings import build_scheduler_config

DERIVED = ["scheduler.max_total_tokens=null", "model=llama-3.1-8b", "hardware=h200-sxm"]


def built(text, *overrides, base_dir=Path()):
    return build(load_scenario_text(text, overrides, name="study.yaml", base_dir=base_dir))


def error_line(text, *overrides, base_dir=Path()):
    with pytest.raises(InputError) as caught:
        built(text, *overrides, base_dir=base_dir)
    return str(caught.value)


def test_built_scenario_has_everything_a_run_needs(valid_text):
    """Workload, settings, and one latency model a replica."""
    result = built(valid_text, "replicas=3")
    assert result.workload.num_requests == 5
    assert len(result.latencies) == 3
    assert all(isinstance(latency, LinearLatency) for latency in result.latencies)
    assert (result.model, result.hardware) == (None, None)


def test_scheduler_config_has_every_written_key(valid_text):
    """Each key reaches the setting of its name."""
    plain = [field.name for field in fields(SchedulerSettings)]
    written = {key: other_values(SglangSection, key)[-1] for key in plain}
    written |= {
        "version": "0.5.9",
        "schedule_policy": "lof",
        "page_size": 8,
        "max_total_tokens": 8000,
        "context_length": 900,
        "chunked_prefill_size": -1,
        "radix_eviction_policy": "slru",
        "radix_eviction_policy_config": {"protected_threshold": 25},
        "fairness": {"kind": "fairness_t", "t_ms": 1.5},
        "admission": {"kind": "pack", "lookahead": 21, "force_fifo_every": 22, "cost": "uncached"},
        "prefill_decode_interval": 0,
        "decode_max_requests": None,
        "prefill_delayer": None,
        "waiting_timeout_s": 1.5,
        "running_timeout_s": 2.5,
        "load_balance_method": "total_requests",
        "host_cache": None,
        "batching": "static",
        "static_batch_size": 23,
        "static_max_wait_ms": 0.5,
    }
    config = built(valid_text, f"scheduler={json.dumps(written)}").scheduler
    written["fairness"] = FairnessT(1_500_000)
    written["admission"] = PackSettings(lookahead=21, force_fifo_every=22, counts_cached=False)
    for key in ("batching", "static_batch_size", "static_max_wait_ms"):
        del written[key]
    written["static_batching"] = StaticSettings(batch_size=23, max_wait_ns=500_000)
    written["radix_eviction_policy_config"] = EvictionSettings(protected_threshold=25)
    written["waiting_timeout_ns"] = int(1e9 * written.pop("waiting_timeout_s"))
    written["running_timeout_ns"] = int(1e9 * written.pop("running_timeout_s"))
    written["window"] = written["states"] = None
    written["speculative_algorithm"] = written["speculation"] = None
    written["speculative_num_steps"] = written["speculative_num_draft_tokens"] = 0
    written["user"], written["engine"] = UserRules(), None
    written["micro_batches"] = 1
    written |= {"role": "both", "retraction_host_tokens": None}
    written["disaggregation_decode_extra_slots"] = 0
    assert {field.name: getattr(config, field.name) for field in fields(config)} == written


@pytest.mark.parametrize(
    ("section", "settings"),
    [
        ({"kind": "fairness_t", "t_ms": None}, None),
        ({"kind": "fairness_t", "t_ms": 0}, FairnessT(0)),
        ({"kind": "k_lpm", "k": 3}, KLpm(3)),
        ({"kind": "aging_tokens_per_pass", "tokens": 7}, AgingTokens(7)),
        ({"kind": "force_fifo_every", "passes": 8}, ForceFifo(8)),
    ],
)
def test_fairness_section_is_the_rule_of_its_kind(valid_text, section, settings):
    """Milliseconds become nanoseconds; null is no rule."""
    overrides = ["scheduler.schedule_policy=lpm", f"scheduler.fairness={json.dumps(section)}"]
    assert built(valid_text, *overrides).scheduler.fairness == settings


def test_fairness_by_tokens_goes_with_lpm(valid_text):
    """Other policies have no tokens to add to."""
    rule = {"kind": "aging_tokens_per_pass", "tokens": 7}
    overrides = ["scheduler.schedule_policy=sjf", f"scheduler.fairness={json.dumps(rule)}"]
    with pytest.raises(InputError, match="goes with schedule_policy lpm, not sjf"):
        built(valid_text, *overrides)


def test_batching_continuous_ignores_the_settings_of_the_other(valid_text):
    """A sweep may compare the two without more ado."""
    config = built(valid_text, "scheduler.static_batch_size=4").scheduler
    assert config.static_batching is None


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["disable_overlap_schedule=false"], "needs disable_overlap_schedule: true"),
        (["enable_mixed_chunk=true"], "does not go with enable_mixed_chunk"),
    ],
)
def test_decode_turns_need_normal_scheduling_without_mixing(valid_text, overrides, message):
    """Both would decide a step before it is known whose turn is over."""
    sets = ["disable_overlap_schedule=true", "decode_max_requests=8", *overrides]
    with pytest.raises(InputError, match=message):
        built(valid_text, *(f"scheduler.{text}" for text in sets))


@pytest.mark.parametrize(("share", "page"), [(0.88, 1), (0.5, 64), (1.0, 4096)])
def test_pool_left_out_is_what_fits_beside_the_weights(valid_text, share, page):
    """It holds as many whole pages as fit: one page more would not."""
    model, hardware = load_model_shape("llama-3.1-8b", Path()), load_hardware("h200-sxm")
    overrides = [f"scheduler.page_size={page}", "scheduler.chunked_prefill_size=-1"]
    if share != 0.88:  # the default
        overrides.append(f"scheduler.mem_fraction_static={share}")
    tokens = built(valid_text, *DERIVED, *overrides).scheduler.max_total_tokens
    room = hardware.memory_bytes * share - model.weight_bytes
    assert tokens % page == 0
    assert tokens * model.kv_bytes_per_token <= room < (tokens + page) * model.kv_bytes_per_token


def test_scheduler_config_alone_equals_the_built_one(valid_text):
    """The settings can be had without reading the workload."""
    loaded = load_scenario_text(valid_text, DERIVED)
    assert build_scheduler_config(loaded.scenario) == build(loaded).scheduler


def test_paths_are_relative_to_the_scenario_file(valid_text, tmp_path, monkeypatch):
    """The current directory does not matter."""
    folder = tmp_path / "scenarios"
    folder.mkdir()
    (tmp_path / "trace.jsonl").write_text(
        '{"timestamp": 0, "input_length": 5, "output_length": 2, "hash_ids": [1]}\n'
    )
    head, _, tail = valid_text.partition("workload:")
    section = "workload: {kind: trace, format: mooncake, path: ../trace.jsonl}\nscheduler:"
    (folder / "study.yaml").write_text(head + section + tail.partition("scheduler:")[2])
    monkeypatch.chdir(tmp_path)
    assert build(load_scenario("scenarios/study.yaml")).workload.num_requests == 1


def test_names_that_are_unknown_are_placed_in_the_scenario(valid_text):
    """Model and hardware are looked up when building, and errors still name the line."""
    text = valid_text.replace("seed: 3", "model: lama-3.1-8b")
    assert error_line(text).startswith(
        "study.yaml:2: model: unknown model 'lama-3.1-8b' (did you mean llama-3.1-8b?"
    )
    assert error_line(valid_text, "hardware=h200").startswith(
        "--set hardware=h200: unknown hardware 'h200' (did you mean h200-sxm?"
    )


TOO_LARGE = (
    "--set model=llama-3.1-70b: llama-3.1-70b does not fit: its weights take 131.4 GiB of the"
    " 21.1 GiB that mem_fraction_static 0.88 of 24.0 GiB leaves on rtx-4090"
)


def test_model_that_does_not_fit_is_an_error(valid_text):
    """Without room for a page beside the weights there is nothing to derive."""
    overrides = ["scheduler.max_total_tokens=null", "model=llama-3.1-70b", "hardware=rtx-4090"]
    assert error_line(valid_text, *overrides) == TOO_LARGE


@pytest.mark.parametrize("pool", ["null", "4096"])
def test_model_that_does_not_fit_is_an_error_that_says_on_how_many_gpus_it_does(valid_text, pool):
    """Whether or not the scenario gives the size of the pool."""
    overrides = [
        *("model=llama-3.1-70b", "hardware=rtx-4090", "latency={kind: roofline}"),
        f"scheduler.max_total_tokens={pool}",
    ]
    assert error_line(valid_text, *overrides) == f"{TOO_LARGE}; latency.tp 8 fits"
    for tp, fits in ((4, False), (8, True)):
        keys = [*overrides, f"latency.tp={tp}", "scheduler.max_total_tokens=null"]
        if fits:
            assert built(valid_text, *keys).scheduler.pool_tokens > 0
        else:
            assert "does not fit" in error_line(valid_text, *keys)


def test_model_that_does_not_fit_beside_blocks_that_are_given_is_an_error(valid_text):
    """Family vllm; GPUs of several stages count."""
    text = valid_text.partition("scheduler:")[0] + "scheduler: {family: vllm}\n"
    overrides = [
        *("model=llama-3.1-70b", "hardware=l4", "latency={kind: roofline, tp: 2, pp: 2}"),
        "scheduler.num_gpu_blocks_override=300",
    ]
    assert error_line(text, *overrides) == (
        "--set model=llama-3.1-70b: llama-3.1-70b does not fit: its weights take 32.9 GiB of the"
        " 20.7 GiB that gpu_memory_utilization 0.92 of 22.5 GiB leaves on each of 4 l4 (tp x pp);"
        " latency.tp 4 fits"
    )


@pytest.mark.parametrize("more", [["latency={kind: roofline, tp: 8}"], []])
def test_model_that_may_fit_beside_a_pool_that_is_given_is_built(valid_text, more):
    """A formula does not say how many GPUs it is about."""
    keys = ["model=llama-3.1-70b", "hardware=rtx-4090", "scheduler.max_total_tokens=4096"]
    assert built(valid_text, *keys, *more).scheduler.pool_tokens == 4096


def test_roofline_without_model_is_an_error_of_its_section(valid_text):
    """What a latency model lacks is said at the latency section."""
    line = error_line(valid_text, "latency={kind: roofline}")
    assert line == "--set latency={kind: roofline}: kind roofline needs the scenario's model"


def test_draws_out_of_range_are_placed_in_the_scenario(valid_text):
    """Errors found only while drawing name the key and its line."""
    text = valid_text.replace("{kind: constant, value: 100}", "{kind: geometric, mean: 10000000}")
    assert error_line(text).startswith("study.yaml:13: workload.prompt_tokens: drew ")


def test_errors_of_other_files_name_those(valid_text, tmp_path):
    """A bad trace is the trace's line, not the scenario's."""
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"timestamp": 0}\n')
    section = f"workload={{kind: trace, format: mooncake, path: {trace}}}"
    assert error_line(valid_text, section).startswith(f"{trace}:1: ")


@pytest.mark.parametrize(
    "latency",
    ["{kind: roofline}", "{kind: layers, path: t, all_reduce_latency_s: 0, all_reduce_gb_s: 0}"],
    ids=["roofline", "layers"],
)
def test_pool_left_out_of_several_gpus_grows_with_them(valid_text, latency):
    """Each has a share of the weights and of the KV heads."""
    keys = [f"latency={latency}", *DERIVED, "scheduler.page_size=1"]
    few, many = (
        build_scheduler_config(load_scenario_text(valid_text, [*keys, f"latency.tp={tp}"]).scenario)
        for tp in (1, 4)
    )
    assert many.max_total_tokens > 4 * few.max_total_tokens


@pytest.mark.parametrize("family", ["sglang", "vllm"])
def test_kv_cache_in_eight_bits_doubles_the_pool(valid_text, family):
    """Whichever of the 8-bit formats it is."""
    text = valid_text.partition("scheduler:")[0] + f"scheduler: {{family: {family}}}\n"
    keys = "model=llama-3.1-8b", "hardware=h200-sxm", "scheduler.kv_cache_dtype="
    plain, short = (
        build_scheduler_config(load_scenario_text(text, [*keys[:2], keys[2] + dtype]).scenario)
        for dtype in ("auto", "fp8_e5m2")
    )
    assert short.pool_tokens == pytest.approx(2 * plain.pool_tokens, rel=1e-3)


@pytest.mark.parametrize(
    ("hardware", "system", "hint"),
    [
        ("h100-sxm", "h200_sxm", "give hardware h200-sxm or leave it out"),
        ("mi300x", "h100_sxm", "give hardware h100-sxm or leave it out"),
        ("h100-sxm", "b60", "leave hardware out"),
    ],
)
def test_hardware_that_is_not_the_measured_gpu_is_one_line(valid_text, hardware, system, hint):
    """A scenario has one kind of GPU."""
    latency = f"latency={{kind: aiconfigurator, system: {system}}}"
    with pytest.raises(InputError) as caught:
        built(valid_text, latency, "model=llama-3.1-8b", f"hardware={hardware}")
    assert str(caught.value) == (
        f"--set hardware={hardware}: is {hardware}, but latency.system is {system}: {hint}"
    )


def test_number_format_of_the_kv_cache_is_given_once(valid_text):
    """As the scheduler's flag or as the package's format."""
    latency = "{kind: aiconfigurator, system: h200_sxm, quantization: {kv_cache: bfloat16}}"
    keys = [f"latency={latency}", "model=llama-3.1-8b", "scheduler.kv_cache_dtype=fp8_e4m3"]
    with pytest.raises(InputError, match=r"kv_cache: is bfloat16, but scheduler\.kv_cache_dtype"):
        built(valid_text, *keys)

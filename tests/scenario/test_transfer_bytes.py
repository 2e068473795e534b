"""Bytes of transfers: of the section, of the model, or of the package that measured its times."""

from pathlib import Path

import pytest

from sim.core.errors import InputError
from sim.scenario.build import build
from sim.scenario.kv_sizes import ServedModel, transfer_bytes
from sim.scenario.load import load_scenario, load_scenario_text
from sim.scenario.servers_section import TransferSection


def bytes_of(text, overrides=(), **keys):
    scenario = load_scenario_text(text, overrides, name="study.yaml", base_dir=Path()).scenario
    section = TransferSection.model_validate({"bandwidth_gb_s": 50.0, **keys})
    return transfer_bytes(section, ServedModel.of(scenario, Path()))


def test_the_section_is_asked_first(valid_text):
    assert bytes_of(valid_text, bytes_per_token=7) == (7, 0, ())
    assert bytes_of(valid_text, bytes_per_token=7, bytes_per_request=9) == (7, 9, ())
    named = ["model=llama-3.1-8b"]
    assert bytes_of(valid_text, named, bytes_per_request=9) == (131_072, 9, ())


def test_somebody_must_say_it(valid_text):
    with pytest.raises(InputError) as caught:
        bytes_of(valid_text)
    assert caught.value.key == ("transfer", "bytes_per_token")


def test_the_format_of_the_kv_cache_counts(valid_text):
    named = ["model=llama-3.1-8b"]
    assert bytes_of(valid_text, [*named, "scheduler.kv_cache_dtype=fp8_e4m3"])[0] == 65_536
    measured = [*named, "latency={kind: aiconfigurator, system: h200_sxm, tp: 2}"]
    assert bytes_of(valid_text, measured)[0] == 131_072
    measured[-1] = measured[-1].replace("tp: 2", "quantization: {kv_cache: fp8}")
    assert bytes_of(valid_text, measured)[0] == 65_536


def test_drafting_layers_are_sent_too(valid_text):
    model = ["model=deepseek-ai/DeepSeek-V3"]
    drafting = [*model, "scheduler.speculative_algorithm=NEXTN", "acceptance={rate: 0.8}"]
    layer_bytes = bytes_of(valid_text, drafting)[0] - bytes_of(valid_text, model)[0]
    assert layer_bytes == 576 * 2


def test_each_pool_gets_what_its_own_gpus_keep(tmp_path):
    """Eight KV heads: each of sixteen GPUs has one that another GPU has, too."""
    path = tmp_path / "pools.yaml"
    path.write_text(
        "name: pools\n"
        "model: llama-3.1-8b\n"
        "hardware: h100-sxm\n"
        "latency: {kind: roofline}\n"
        "workload: {kind: synthetic, num_requests: 9, arrivals: {kind: constant, rate_rps: 1},\n"
        "  prompt_tokens: {kind: constant, value: 9}, output_tokens: {kind: constant, value: 9}}\n"
        "scheduler: {max_total_tokens: 4096}\n"
        "transfer: {bandwidth_gb_s: 50}\n"
        "pools:\n"
        "  prompts: {role: prefill}\n"
        "  wide: {role: decode, latency: {tp: 16}}\n"
        "  narrow: {role: decode}\n"
    )
    sizes = {name: pool.kv_bytes for name, pool in build(load_scenario(path)).pools.items()}
    assert sizes["prompts"] is None
    assert sizes["wide"].per_token == 2 * sizes["narrow"].per_token > 0

"""What a drafter takes of the memory, and of the pool whose size is derived from it."""

import json

import pytest

from sim.core.errors import InputError
from sim.family.section import Drafts
from sim.latency.architectures.model_key import load_model_shape
from sim.scenario.kv_sizes import drafter_of, with_drafter
from sim.scenario.load import load_scenario_text
from sim.sglang.section.scheduler import SglangSection
from sim.vllm.section.speculation import SpeculativeConfig
from tests.support.scheduler_settings import build_scheduler_config


def drafts(method, model=None):
    config = {"method": method, "num_speculative_tokens": 3, "model": model}
    return SpeculativeConfig.model_validate(config).drafts


def pool_tokens(base_dir, latency="{kind: roofline, drafter_share: 0.1}", **speculation):
    scenario = {
        "name": "pool",
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm",
        "latency": "LATENCY",
        "workload": {"kind": "trace", "format": "servetwin", "path": "x.jsonl"},
        "scheduler": {"family": "vllm"},
    }
    if speculation:
        scenario["scheduler"]["speculative_config"] = speculation | {"num_speculative_tokens": 3}
        scenario["acceptance"] = {"rate": 0.5}
    text = json.dumps(scenario, indent=1).replace('"LATENCY"', latency)
    loaded = load_scenario_text(text, base_dir=base_dir)
    return build_scheduler_config(loaded.scenario, base_dir=base_dir).pool_tokens


@pytest.mark.parametrize(
    "latency",
    [
        "{kind: roofline, drafter_share: 0.1}",
        "{kind: aiconfigurator, system: h100_sxm, backend: vllm}",
    ],
)
def test_pool_has_room_for_one_layer_more_with_mtp(tmp_path, latency):
    """Llama-3.1-8B has 32 layers, so KV of a token takes 33 / 32 as much."""
    plain, looked_up = (
        pool_tokens(tmp_path, latency),
        pool_tokens(tmp_path, latency, method="ngram"),
    )
    layer = pool_tokens(tmp_path, latency, method="mtp")
    assert looked_up == plain
    assert 0.95 * 32 / 33 * plain < layer < 32 / 33 * plain


def test_sglang_counts_the_same(tmp_path):
    """A NEXTN layer of the checkpoint, or the model that `speculative_draft_model_path` names."""
    model = load_model_shape("llama-3.1-8b", tmp_path)
    sections = [
        SglangSection(speculative_algorithm="NEXTN"),
        SglangSection(
            speculative_algorithm="STANDALONE", speculative_draft_model_path="qwen2.5-0.5b"
        ),
    ]
    theirs = [drafts("mtp"), drafts("draft_model", "qwen2.5-0.5b")]
    for section, same in zip(sections, theirs, strict=True):
        assert drafter_of(section.drafts, model, tmp_path) == drafter_of(same, model, tmp_path)
    missing = SglangSection(speculative_algorithm="EAGLE", speculative_draft_model_path="./no.json")
    with pytest.raises(InputError) as error:
        drafter_of(missing.drafts, model, tmp_path)
    assert error.value.key == ("scheduler", "speculative_draft_model_path")


def test_a_small_model_is_counted_whole_and_an_eagle_head_by_its_layers(tmp_path):
    model = load_model_shape("llama-3.1-8b", tmp_path)
    small = load_model_shape("qwen2.5-0.5b", tmp_path)
    both = with_drafter(model, drafter_of(drafts("draft_model", "qwen2.5-0.5b"), model, tmp_path))
    assert both.weight_bytes == model.weight_bytes + small.weight_bytes
    assert both.kv_bytes_per_token == model.kv_bytes_per_token + small.kv_bytes_per_token
    of_head = drafter_of(drafts("eagle", "qwen2.5-0.5b"), model, tmp_path)
    assert of_head.weight_bytes == sum(
        layer.count * part.num_bytes(2) for layer in small.layers for part in layer.matrices
    )
    assert pool_tokens(tmp_path, method="draft_model", model="qwen2.5-0.5b") < pool_tokens(
        tmp_path, method="eagle", model="qwen2.5-0.5b"
    )


def test_drafters_of_unknown_size_are_not_counted(tmp_path):
    model = load_model_shape("llama-3.1-8b", tmp_path)
    assert drafter_of(None, model, tmp_path) is None
    assert drafter_of(drafts("eagle"), model, tmp_path) is None
    assert drafter_of(drafts("eagle3", "org/unknown"), model, tmp_path) is None
    assert drafter_of(Drafts("EAGLE", 3, "layer"), model, tmp_path) is None
    with pytest.raises(InputError, match=r"none\.json"):
        drafter_of(drafts("draft_model", "./none.json"), model, tmp_path)

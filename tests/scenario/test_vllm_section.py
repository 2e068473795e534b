"""The scheduler section of family vllm: its settings, and its errors with line and key."""

import json
from pathlib import Path

import pytest

from sim.core.errors import InputError
from sim.latency.architectures.model_key import load_model_shape
from sim.latency.hardware import load_hardware
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text
from sim.vllm.config import VllmConfig
from sim.vllm.section.scheduler import VllmSection

_SECTION = """\
scheduler:
  family: vllm
  block_size: 16
  num_gpu_blocks_override: 257
  max_num_batched_tokens: 512
"""


@pytest.fixture
def text(valid_text):
    """The valid scenario with a server of this family; its section begins on line 15."""
    return valid_text[: valid_text.index("scheduler:")] + _SECTION


def built(text, *overrides):
    return build(load_scenario_text(text, overrides, name="study.yaml"))


# (what is replaced, by what, the whole error line)
SPOILED = [
    ("block_size", "block_sizes",
     "17: scheduler.block_sizes: unknown key (did you mean block_size?)"),
    ("block_size: 16", "page_size: 16",
     ("17: scheduler.page_size: unknown key (family sglang has it; in family vllm block_size is"
      " its counterpart)")),
    ("  family: vllm\n", "",
     ("16: scheduler.block_size: unknown key (family vllm has it; in family sglang page_size is"
      " its counterpart)")),
    ("block_size: 16", "zzzz: 16", "17: scheduler.zzzz: unknown key"),
    ("vllm", "vlm", "16: scheduler.family: unknown family 'vlm' (did you mean vllm?)"),
    ("vllm", "tgi", "16: scheduler.family: unknown family 'tgi' (one of: sglang, vllm)"),
    ("vllm", "3", "16: scheduler.family: must be one of sglang, vllm, got 3"),
    ("vllm", "[vllm]", "16: scheduler.family: must be one of sglang, vllm, got a list"),
    ("16", "0", "17: scheduler.block_size: must be at least 1, got 0"),
    ("257", "1", "18: scheduler.num_gpu_blocks_override: must be at least 2, got 1"),
    ("512", "512.0", "19: scheduler.max_num_batched_tokens: must be a whole number, got 512.0"),
    ("block_size: 16", "scheduling_policy: lpm",
     "17: scheduler.scheduling_policy: unknown value 'lpm' (one of: fcfs, priority)"),
    ("block_size: 16", "async_scheduling: on",
     "17: scheduler.async_scheduling: must be true or false, got the string 'on'"),
    ("block_size: 16", "watermark: 1", "17: scheduler.watermark: must be less than 1, got 1"),
    # contradictions
    ("block_size: 16", "max_num_active_seqs: 129",
     "17: scheduler: max_num_active_seqs 129 must be at most max_num_seqs 128"),
    ("block_size: 16", "long_prefill_token_threshold: 4097",
     ("17: scheduler.long_prefill_token_threshold: 4097 is more than the longest sequence,"
      " max_model_len 4096")),
    ("512", "64", "19: scheduler: max_num_batched_tokens 64 must be at least max_num_seqs 128"),
    ("block_size: 16", "gpu_memory_utilization: 0.5",
     ("17: scheduler: gpu_memory_utilization derives the number of blocks: give it or"
      " num_gpu_blocks_override, not both")),
    ("  num_gpu_blocks_override: 257\n", "",
     ("15: scheduler.num_gpu_blocks_override is required: it can be derived only from model"
      " and hardware together")),
    # the pool
    ("block_size: 16", "max_model_len: 4097",
     "17: scheduler.max_model_len: 4097 tokens do not fit in the pool of 4096 tokens"),
    ("block_size: 16", "enable_chunked_prefill: false",
     ("17: scheduler.enable_chunked_prefill: false needs max_num_batched_tokens 512 to be at"
      " least the longest sequence, max_model_len 4096")),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line"), SPOILED, ids=[new for _, new, _ in SPOILED])
def test_section_with_one_fault_says_so_in_one_line(text, old, new, line):
    """As errors of any other section do."""
    head, section = text[: -len(_SECTION)], _SECTION
    assert old in section
    with pytest.raises(InputError) as caught:
        built(head + section.replace(old, new, 1))
    assert str(caught.value) == f"study.yaml:{line}"


def test_option_that_does_not_fit_the_pool_is_named(text):
    """Errors that need the pool's size blame the option, too."""
    with pytest.raises(InputError) as caught:
        built(text, "scheduler.max_model_len=9999")
    line = "--set scheduler.max_model_len=9999: 9999 tokens do not fit in the pool of 4096 tokens"
    assert str(caught.value) == line


def test_section_with_every_key_is_the_configuration_of_that(text):
    """Each key reaches the setting of its name."""
    written = {
        "version": "0.33.0",
        "max_num_active_seqs": 7,
        "max_num_batched_tokens": 100,
        "max_num_seqs": 11,
        "max_model_len": 90,
        "block_size": 8,
        "enable_prefix_caching": False,
        "enable_chunked_prefill": False,
        "long_prefill_token_threshold": 12,
        "long_prefill_token_threshold_adaptive": True,
        "prefill_schedule_interval": 2,
        "scheduling_policy": "priority",
        "async_scheduling": True,
        "scheduler_reserve_full_isl": False,
        "watermark": 0.25,
        "max_num_queued_reqs": 30,
        "max_num_queued_tokens": 0,
    }
    section = written | {"family": "vllm", "num_gpu_blocks_override": 50}
    config = built(text, f"scheduler={json.dumps(section)}").scheduler
    assert config == VllmConfig(**written, num_gpu_blocks=50)
    assert config.pool_tokens == 49 * 8
    assert config.as_dict() == {**written, "family": "vllm", "num_gpu_blocks": 50}


def test_prompts_may_stay_whole_if_the_longest_fits_the_budget(text):
    """Where vLLM starts, so do we."""
    config = built(
        text, "scheduler.enable_chunked_prefill=false", "scheduler.max_model_len=512"
    ).scheduler
    assert (config.enable_chunked_prefill, config.max_model_len) == (False, 512)


@pytest.mark.parametrize(
    ("version", "share", "used"),
    [("0.33", None, 0.92), ("0.19", None, 0.9), ("0.33.0", 0.5, 0.5)],
)
def test_blocks_are_derived_from_what_the_weights_leave(text, version, share, used):
    """The longest sequence is as long as the pool."""
    section = {"family": "vllm", "version": version}
    section |= {} if share is None else {"gpu_memory_utilization": share}
    config = built(
        text,
        f"scheduler={json.dumps(section)}",
        "model=llama-3.1-8b",
        "hardware=h200-sxm",
    ).scheduler
    model, hardware = load_model_shape("llama-3.1-8b", Path()), load_hardware("h200-sxm")
    room = int(hardware.memory_bytes * used) - model.weight_bytes
    assert config.num_gpu_blocks == room // (16 * model.kv_bytes_per_token)
    assert config.max_model_len == config.pool_tokens


@pytest.mark.parametrize(
    ("version", "given", "num_ranks", "expected"),
    [("0.33.0", None, 4, 4), ("0.14.0", None, 4, 1), ("0.14.0", 3, 4, 3), ("0.19.0", None, 1, 1)],
)
def test_api_servers_are_as_many_as_ranks_in_the_newest_version(
    version, given, num_ranks, expected
):
    """Unless their number is given."""
    section = VllmSection(family="vllm", version=version, api_server_count=given)
    assert section.num_front_ends(num_ranks) == expected

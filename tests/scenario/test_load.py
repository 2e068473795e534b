"""Loading: round trips, content hashes, determinism, and nothing but one-line errors."""

import json
import os
import random
import re
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from sim.core.errors import InputError
from sim.scenario.load import load_scenario, load_scenario_text
from sim.scenario.strict_yaml import parse_yaml_mapping
from sim.sglang.config import SchedulerConfig
from sim.sglang.policies.policy import POLICIES
from sim.vllm.config import VllmConfig

LENGTHS = st.one_of(
    st.builds(lambda n: {"kind": "constant", "value": n}, st.integers(1, 1000)),
    st.builds(
        lambda low, more: {"kind": "uniform", "min": low, "max": low + more},
        st.integers(1, 100),
        st.integers(0, 100),
    ),
    st.builds(
        lambda mean, cv: {"kind": "lognormal", "mean": mean, "cv": cv},
        st.floats(1, 1000),
        st.floats(0, 3),
    ),
)
SECONDS = st.floats(0, 10)
# Some of these words are not text in some YAML dialects.
NAMES = st.one_of(
    st.sampled_from(["off", "12:30", "1e3", "0x1", "null", "~", "2026-01-31", "a: b", "#", "012"]),
    st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=20),
).filter(lambda name: name.isprintable() and not set(name) & set("/\\"))


@st.composite
def sglang_sections(draw):
    """Data of valid scheduler sections of the default family."""
    page = draw(st.integers(1, 4096))
    return {
        "schedule_policy": draw(st.sampled_from(sorted(POLICIES))),
        "page_size": page,
        "context_length": page * draw(st.integers(1, 100)),
        "max_total_tokens": page * draw(st.integers(1, 100)),
        "chunked_prefill_size": draw(st.sampled_from([-1, page, 3 * page])),
    }


@st.composite
def vllm_sections(draw):
    """Data of valid scheduler sections of the other family."""
    return {
        "family": "vllm",
        "scheduling_policy": draw(st.sampled_from(["fcfs", "priority"])),
        "max_num_seqs": draw(st.integers(1, 2048)),
        "max_model_len": draw(st.none() | st.integers(1, 2**31 - 1)),
        "num_gpu_blocks_override": draw(st.integers(2, 2**36)),
        "long_prefill_token_threshold": draw(st.integers(0, 2**31 - 1)),
        "async_scheduling": draw(st.none() | st.booleans()),
        "version": draw(st.sampled_from(["0.19.0", "0.11.2"])),
    }


@st.composite
def scenarios(draw):
    """Data of valid scenarios."""
    return {
        "name": draw(NAMES),
        "seed": draw(st.integers(0, 2**63 - 1)),
        "latency": {
            "kind": "linear",
            "step_s": draw(SECONDS),
            "per_prefill_token_s": draw(SECONDS),
            "per_decode_request_s": draw(SECONDS),
            "per_context_token_s": draw(SECONDS),
        },
        "workload": {
            "kind": "synthetic",
            "num_requests": draw(st.integers(1, 100)),
            "arrivals": {"kind": "poisson", "rate_rps": draw(st.floats(0.001, 1000))},
            "prompt_tokens": draw(LENGTHS),
            "output_tokens": draw(LENGTHS),
            "max_new_tokens": draw(
                st.sampled_from([None, 7, {"factor": 1.5}]),
            ),
        },
        "scheduler": draw(sglang_sections() | vllm_sections()),
        "slo": {"ttft_ms": draw(st.none() | st.floats(0.001, 1e6))},
    }


def as_yaml(data):
    """JSON is YAML."""
    return json.dumps(data, ensure_ascii=False)


def error_line(text, *overrides):
    """The error line of loading; None if the text is a valid scenario."""
    try:
        load_scenario_text(text, overrides, name="fuzzed.yaml")
    except InputError as error:
        return str(error)
    return None


def shuffled(data, rng):
    """Equal data with every mapping's keys in another order."""
    if isinstance(data, dict):
        items = [(key, shuffled(value, rng)) for key, value in data.items()]
        rng.shuffle(items)
        return dict(items)
    return data


@given(scenarios())
def test_scenario_written_out_and_read_again_is_equal(data):
    """All values survive: a dump of the validated scenario loads as the same scenario."""
    first = load_scenario_text(as_yaml(data))
    written = first.scenario.model_dump(mode="json")
    again = load_scenario_text(as_yaml(written))
    assert again.scenario == first.scenario
    assert again.content_hash == first.content_hash
    assert first.scenario.name == data["name"]
    assert first.scenario.workload.arrivals.rate_rps == data["workload"]["arrivals"]["rate_rps"]


@given(scenarios(), st.randoms(use_true_random=False))
def test_content_hash_with_keys_in_another_order_is_equal(data, rng):
    """Key order is not content."""
    first, second = (load_scenario_text(as_yaml(d)) for d in (data, shuffled(data, rng)))
    assert first.content_hash == second.content_hash


def test_content_hash_depends_on_meaning_only(valid_text):
    """Comments, spelling of numbers and written defaults do not count; values do."""
    plain = load_scenario_text(valid_text).content_hash
    same = valid_text.replace("4e-5", "0.00004").replace("seed: 3", "seed: 3  # why\nreplicas: 1")
    assert load_scenario_text(same, name="elsewhere").content_hash == plain
    assert load_scenario_text(valid_text, ["seed=3"]).content_hash == plain
    assert load_scenario_text(valid_text, ["seed=4"]).content_hash != plain


def test_content_hash_is_the_same_in_every_process(valid_text, tmp_path):
    """No hash randomisation reaches it."""
    path = tmp_path / "study.yaml"
    path.write_text(valid_text)
    code = f"from sim.scenario.load import *; print(load_scenario({str(path)!r}).content_hash)"
    seed = "1" if os.environ.get("PYTHONHASHSEED") == "0" else "0"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONHASHSEED": seed},
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout.strip() == load_scenario(path).content_hash


def test_scheduler_keys_left_out_take_the_schedulers_defaults(valid_text):
    """There is one home for defaults: the scheduler's own settings."""
    scheduler = load_scenario_text(
        "".join(valid_text.partition("scheduler:")[:2]) + " {}",
        ["scheduler.max_total_tokens=32768"],
    ).scenario.scheduler
    elsewhere = {"mem_fraction_static", "kv_cache_dtype", "tokenizer_worker_num"}
    elsewhere |= {"cuda_graph_max_bs", "radix_eviction_policy_config"}
    elsewhere |= {"waiting_timeout_s", "running_timeout_s"}
    elsewhere |= {"sliding_window", "swa_full_tokens_ratio", "swa_eviction_interval"}
    elsewhere |= {"disable_hybrid_swa_memory", "max_mamba_cache_size"}
    elsewhere |= {"mamba_radix_cache_strategy", "mamba_track_interval"}
    elsewhere |= {"mamba_full_memory_ratio", "mamba_ssm_dtype"}
    elsewhere |= {"batching", "static_batch_size", "static_max_wait_ms"}
    elsewhere |= {f"speculative_{name}" for name in ("num_steps", "num_draft_tokens")}
    elsewhere |= {"speculative_eagle_topk", "speculative_draft_model_path"}
    elsewhere |= {"load_balance_method", "disaggregation_decode_extra_slots"}
    elsewhere |= {"disaggregation_decode_retraction_backup", "hicache_ratio"}
    assert scheduler.config(32768) == SchedulerConfig()
    for key, default in scheduler.model_dump(exclude=elsewhere).items():
        assert default == getattr(SchedulerConfig(), key)


def test_scheduler_keys_left_out_take_those_of_the_family(valid_text):
    """The same for vLLM's; the longest sequence is the pool's, and two switches the version's."""
    scheduler = load_scenario_text(
        "".join(valid_text.partition("scheduler:")[:2]) + " {family: vllm}",
        ["scheduler.num_gpu_blocks_override=2049"],
    ).scenario.scheduler
    config = VllmConfig(max_model_len=2048 * 16)
    assert scheduler.config(scheduler.pool_tokens) == config
    elsewhere = {"max_model_len", "num_gpu_blocks_override", "gpu_memory_utilization"}
    elsewhere |= {"kv_cache_dtype", "async_scheduling", "scheduler_reserve_full_isl"}
    elsewhere |= {"api_server_count", "max_cudagraph_capture_size", "speculative_config"}
    elsewhere |= {"kv_cache_groups", "prefix_cache_retention_interval"}
    elsewhere |= {"kv_offloading_size", "kv_offloading"}
    for key, default in scheduler.model_dump(exclude=elsewhere).items():
        assert default == getattr(config, key)


def test_content_hash_of_the_first_family_is_that_without_a_family(valid_text):
    """Results from before there was another family are still known."""
    plain = load_scenario_text(valid_text).content_hash
    said = load_scenario_text(valid_text, ["scheduler.family=sglang"]).content_hash
    assert plain == said


PIECES = [
    "kind", "workload", ": ", "\n", "  ", "- ", "[", "]", "{", "}", "null", "-1", "1e999", "0", "'",
    '"', "#", "\t", "&a ", "*a", "!!int ", "<<", "---\n", "\x00", "\ud7ff", "\U0001f600", "true",
    "999999999999999999999", "mix", "trace", "roofline", "max_new_tokens: {factor: 0}", "|\n", "? ",
]  # fmt: skip


@given(st.data())
def test_scenario_mutated_at_random_raises_only_input_errors(data):
    """Whatever is deleted, inserted or doubled, the result loads or gives one line."""
    text = FUZZED
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        stop = data.draw(st.integers(start, min(len(text), start + 30)))
        middle = data.draw(
            st.sampled_from(PIECES) | st.just(text[start:stop] * 2) | st.text(max_size=5)
        )
        text = text[:start] + middle + text[stop:]
    line = error_line(text)
    assert line is None or re.fullmatch(r"fuzzed\.yaml:( |\d+: ).+", line)


FUZZED = """\
name: study
model: tiny
latency: {kind: linear, step_s: 0.005, per_prefill_token_s: 4e-5, per_decode_request_s: 5e-5,
          per_context_token_s: 2e-8}
workload:
  kind: mix
  parts:
    - tenant: a
      workload:
        kind: sessions
        sessions: 3
        arrivals: {kind: gamma, rate_rps: 10, cv: 2}
        turns: {kind: choice, values: [1, 2], weights: [0.5, 1]}
        user_tokens: {kind: constant, value: 10}
        output_tokens: {kind: geometric, mean: 10, max: 50}
        think_s: {kind: exponential, mean: 2.0}
        max_new_tokens: {factor: 1.5}
        predicted_output: {kind: lognormal, sigma: 0.3}
    - tenant: b
      workload: {kind: trace, format: mooncake, path: x.jsonl, max_new_tokens: 5}
scheduler: {page_size: 16, max_total_tokens: 4096, chunked_prefill_size: 512}
slo: {ttft_ms: 500}
"""


def test_fuzzed_scenario_unchanged_is_valid():
    """The text that mutations start from loads."""
    assert load_scenario_text(FUZZED).scenario.workload.kind == "mix"


@given(st.integers(0, 10**6))
def test_scenario_value_replaced_by_another_type_raises_only_input_errors(seed):
    """Any value in the tree may become any other: it loads or gives one line."""
    rng = random.Random(seed)
    data = parse_yaml_mapping(FUZZED, "f").value
    node = data
    while True:
        key = rng.choice(list(node) if isinstance(node, dict) else range(len(node)))
        if not isinstance(node[key], dict | list) or not node[key] or rng.random() < 0.2:
            break
        node = node[key]
    node[key] = rng.choice(
        [None, True, 3, -1.5, "kind", [], [1], {}, {"kind": "x"}, {"kind": None}]
    )
    line = error_line(as_yaml(data))
    assert line is None or re.fullmatch(r"fuzzed\.yaml:1: .+", line)


@given(
    st.lists(
        st.sampled_from(["workload", "parts", "0", "slo", "ttft_ms", "x", "", " "]), max_size=4
    ),
    st.sampled_from(["", "=", "=="]),
    st.sampled_from(PIECES) | st.text(max_size=8),
)
def test_override_of_random_parts_raises_only_input_errors(parts, equals, value):
    """Any option at all loads or gives one line that names the option or the file."""
    line = error_line(FUZZED, ".".join(parts) + equals + value)
    assert line is None or re.fullmatch(r"(--set |fuzzed\.yaml:\d+: ).+", line)

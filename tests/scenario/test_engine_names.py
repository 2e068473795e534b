"""A key that an engine calls otherwise, now or once, leads to the right one."""

import pytest

from sim.core.errors import InputError
from sim.families import FAMILIES
from sim.latency.hardware import load_hardware
from sim.scenario.explain import _ELSEWHERE, _REMOVED, _SETTINGS
from sim.scenario.load import load_scenario_data

SGLANG = {"family": "sglang", "max_total_tokens": 4096}
VLLM = {"family": "vllm", "num_gpu_blocks_override": 300}
BENCH = {"kind": "bench", "client": "vllm", "num_prompts": 3, "input_len": 5, "output_len": 5}


def refused(*path, **sections):
    """What is said of a key at this path."""
    data = {
        "name": "a",
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm",
        "latency": {"kind": "roofline"},
        "workload": {
            "kind": "synthetic",
            "num_requests": 5,
            "arrivals": {"kind": "poisson", "rate_rps": 5},
            "prompt_tokens": {"kind": "constant", "value": 5},
            "output_tokens": {"kind": "constant", "value": 5},
        },
        "scheduler": SGLANG,
    } | sections
    *above, key = path
    for section in above:
        data[section] = {**data[section], key: 4}
    if not above:
        data[key] = 4
    with pytest.raises(InputError) as caught:
        load_scenario_data(data)
    return str(caught.value).partition("unknown key (")[2].removesuffix(")")


@pytest.mark.parametrize(
    ("key", "sglang", "vllm"),
    [
        ("mem_frac", "mem_fraction_static", "gpu_memory_utilization"),
        ("max_batch_size", "max_running_requests", "max_num_seqs"),
        ("max_num_tokens", "chunked_prefill_size", "max_num_batched_tokens"),
        ("max_total_num_tokens", "max_total_tokens", "num_gpu_blocks_override"),
        ("schedule_heuristic", "schedule_policy", "scheduling_policy"),
        ("max_seq_len", "context_length", "max_model_len"),
        ("cuda_graph_sizes", "cuda_graph_max_bs", "max_cudagraph_capture_size"),
        ("tensor_parallel_size", "latency.tp", "latency.tp"),
        ("tp_size", "latency.tp", "latency.tp"),
        ("enable_dp_attention", "latency.dp", "latency.dp"),
        ("quantization", "latency.quantization", "latency.quantization"),
    ],
)
def test_old_names_and_those_of_other_engines_lead_to_the_key(key, sglang, vllm):
    assert refused("scheduler", key) == f"did you mean {sglang}?"
    assert refused("scheduler", key, scheduler=VLLM) == f"did you mean {vllm}?"


@pytest.mark.parametrize(
    ("sglang", "vllm", "means"),
    [
        ("mem_fraction_static", "gpu_memory_utilization", "is its counterpart"),
        ("max_running_requests", "max_num_seqs", "is its counterpart"),
        ("page_size", "block_size", "is its counterpart"),
        ("disable_radix_cache", "enable_prefix_caching", "says the opposite"),
        ("disable_overlap_schedule", "async_scheduling", "says the opposite"),
    ],
)
def test_key_of_the_other_family_leads_to_that_of_ones_own(sglang, vllm, means):
    """As after a change of `family` alone."""
    line = f"family vllm has it; in family sglang {sglang} {means}"
    assert refused("scheduler", vllm) == line
    line = f"family sglang has it; in family vllm {vllm} {means}"
    assert refused("scheduler", sglang, scheduler=VLLM) == line


@pytest.mark.parametrize("key", sorted(_REMOVED))
def test_key_that_an_engine_gave_up_is_said_to_be_gone(key):
    for scheduler in (SGLANG, VLLM):
        assert refused("scheduler", key, scheduler=scheduler) == _REMOVED[key]


@pytest.mark.parametrize(
    ("path", "words", "sections"),
    [
        (("tp",), "did you mean latency.tp?", {}),
        (("latency", "tp_size"), "did you mean latency.tp?", {}),
        (
            ("latency", "tp_size"),
            "other kinds have latency.tp",
            {"latency": {"kind": "linear", "step_s": 0.1, "per_prefill_token_s": 0,
                         "per_decode_request_s": 0, "per_context_token_s": 0}},
        ),
        (("gpu",), "did you mean hardware?", {}),
        (("workload", "rate"), "did you mean workload.arrivals.rate_rps?", {}),
        (("workload", "rate"), "did you mean request_rate?", {"workload": BENCH}),
        (("workload", "num_prompts"), "did you mean workload.num_requests?", {}),
        (("workload", "num_requests"), "did you mean num_prompts?", {"workload": BENCH}),
    ],
)  # fmt: skip
def test_names_that_people_try_lead_to_the_key(path, words, sections):
    assert refused(*path, **sections) == words


def test_every_key_that_is_offered_exists_and_no_other_name_is_one():
    """A name in the table that is a key of the family would never be looked up."""
    keys = {name: FAMILIES[name].section().model_fields.keys() for name in ("sglang", "vllm")}
    for setting in _SETTINGS:
        assert setting.sglang in keys["sglang"]
        assert setting.vllm in keys["vllm"]
        assert not set(setting.others.split()) & (keys["sglang"] | keys["vllm"])
    assert not _REMOVED.keys() & (keys["sglang"] | keys["vllm"])
    assert not frozenset().union(*_ELSEWHERE.values()) & (keys["sglang"] | keys["vllm"])


@pytest.mark.parametrize(
    ("hardware", "offered"),
    [("h100", "h100-pcie or h100-sxm"), ("A100", "a100-40gb-sxm or a100-80gb-sxm")],
)
def test_gpu_of_several_forms_is_asked_for_by_name(hardware, offered):
    with pytest.raises(InputError, match=rf"\(did you mean {offered}\?"):
        load_hardware(hardware)

"""A GPU's memory is shared out between states and KV as SGLang 0.5.23 does it.

The expected numbers are worked out by hand from the source's formulas and the models' config.json:
`mamba_cache_per_req` (configs/mamba_utils.py), and `_handle_max_mamba_cache` and
`resolve_max_num_reqs` (mem_cache/kv_cache_configurator.py).
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.errors import InputError
from sim.family.section import MemoryForKv
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text
from sim.sglang.section.pools import states_in, tokens_beside_states
from sim.sglang.section.scheduler import SglangSection

GIB = 2**30
_SCENARIO = """
name: states
model: {model}
hardware: h100-sxm
latency: {{kind: roofline, tp: {tp}}}
workload: {{kind: synthetic, num_requests: 1, arrivals: {{kind: poisson, rate_rps: 1}},
           prompt_tokens: {{kind: constant, value: 9}},
           output_tokens: {{kind: constant, value: 2}}}}
scheduler: {{max_running_requests: {rows}, {keys}}}
"""
NEXT = "Qwen/Qwen3-Next-80B-A3B-Instruct"
MODEL = "max_mamba_cache_size: model"
# 36 layers: 32 heads of 128 x 128 elements of 4 bytes, and 3 x (2 x 16 x 128 + 32 x 128) of 2.
NEXT_STATE = 36 * (32 * 128 * 128 * 4 + 3 * 8_192 * 2)
# 12 layers: one head on each GPU, keys and values of 256 elements of 2 bytes.
NEXT_KV = 12 * 2 * 256 * 2
# 48 layers with 48 heads; 16 layers with 4 heads of KV.
DENSE_STATE = 48 * (48 * 128 * 128 * 4 + 3 * (2 * 16 * 128 + 48 * 128) * 2)
DENSE_KV = 16 * 4 * 2 * 256 * 2


def built(keys=MODEL, *, model=NEXT, tp=4, rows=2_048):
    return build(load_scenario_text(_SCENARIO.format(model=model, tp=tp, rows=rows, keys=keys)))


def memory_of(found, tp, share=0.88):
    return int(80 * GIB * share) - -(-found.model.weight_bytes // tp)


@pytest.mark.parametrize(
    ("model", "tp", "keys", "state", "kv", "ratio"),
    [
        (NEXT, 4, "page_size: 64", NEXT_STATE // 4, NEXT_KV, 0.9),
        ("Qwen/Qwen3.5-27B", 1, "mamba_full_memory_ratio: 0.25", DENSE_STATE, DENSE_KV, 0.25),
    ],
)
def test_states_take_their_share_of_the_room(model, tp, keys, state, kv, ratio):
    """The pool of states has one more than can be used; KV gets what is left, in whole pages."""
    found = built(f"{MODEL}, {keys}", model=model, tp=tp)
    room, config = memory_of(found, tp), found.scheduler
    num_states = int((room * ratio / (1 + ratio) - state) // state)
    assert config.states.num_states == num_states
    page = config.page_size
    tokens = (room - (num_states + 1) * state) // kv
    assert config.max_total_tokens == tokens // page * page
    # Three states of each request, and two tracked ones under overlap scheduling.
    assert config.max_running_requests == num_states // 5


def test_drafts_take_states_of_each_running_request():
    """A step that verifies 4 tokens needs 4 states of each request that may run, and of one more.

    Of 2,000 states' bytes, half are for states: 1 and 4 are spare, and each of the others needs
    1 + 4 / 5, since a fifth of them may run: floor(995 / 1.8) = 552, for 110 requests. KV gets the
    bytes of 2,000 - 553 - 4 x 111 = 1,003 states.
    """
    section = SglangSection(
        max_mamba_cache_size="model", mamba_full_memory_ratio=1.0, max_running_requests=500,
        speculative_algorithm="NGRAM", speculative_num_draft_tokens=4,
    )  # fmt: skip
    model, room = built().model, MemoryForKv(2_000 * NEXT_STATE / 4, 4)
    assert states_in(section, model, room) == 552
    assert tokens_beside_states(section, model, room) == 1_003 * NEXT_STATE // 4 // NEXT_KV


def test_states_of_qwen3_next_on_four_h100():
    """875 states of 18.4 MiB on each GPU: 175 requests run at most, beside 1.5 million tokens."""
    config = built(f"{MODEL}, page_size: 64").scheduler
    assert (config.states.num_states, config.max_total_tokens) == (875, 1_532_608)
    assert config.max_running_requests == 175
    assert built(f"{MODEL}, page_size: 64", rows=100).scheduler.max_running_requests == 100


def test_states_in_sixteen_bits_are_half_as_large():
    """Only the recurrent part: the convolution has 16 bits in any case."""
    half = built(f"{MODEL}, mamba_ssm_dtype: bfloat16")
    assert half.model.state_bytes == NEXT_STATE - 36 * 32 * 128 * 128 * 2
    assert half.scheduler.states.num_states == 1_713


def test_given_states_leave_the_rest_to_kv():
    """No prefix cache: a state for each request slot, of which none is cached."""
    found = built("max_mamba_cache_size: 100, page_size: 1")
    left = memory_of(found, 4) - 101 * NEXT_STATE // 4
    assert found.scheduler.max_total_tokens == left // NEXT_KV
    assert found.scheduler.max_running_requests == 20
    plain = built(f"{MODEL}, disable_radix_cache: true, page_size: 1", rows=100).scheduler
    assert (plain.states, plain.max_running_requests) == (None, 100)
    assert plain.max_total_tokens == found.scheduler.max_total_tokens


def test_given_tokens_leave_the_states_as_they_are():
    """SGLang counts states before it looks at `--max-total-tokens`."""
    config = built(f"{MODEL}, page_size: 64, max_total_tokens: 6400").scheduler
    assert (config.states.num_states, config.max_total_tokens) == (875, 6_400)


@given(
    ratio=st.floats(0.1, 5), share=st.floats(0.6, 1), page=st.sampled_from([1, 16, 64]),
    dtype=st.sampled_from(["float32", "bfloat16"]),
)  # fmt: skip
def test_states_and_kv_fit_into_the_room(ratio, share, page, dtype):
    """What both pools leave is less than a page."""
    keys = f"{MODEL}, page_size: {page}, mamba_full_memory_ratio: {ratio!r}"
    found = built(f"{keys}, mem_fraction_static: {share!r}, mamba_ssm_dtype: {dtype}")
    state, config = found.model.state_bytes // 4, found.scheduler
    used = (config.states.num_states + 1) * state + config.max_total_tokens * NEXT_KV
    assert 0 <= memory_of(found, 4, share) - used < page * NEXT_KV


@pytest.mark.parametrize(
    ("keys", "options", "reason"),
    [
        (MODEL, {"model": "llama-3.1-8b"}, "llama-3.1-8b has no state-space or linear"),
        (f"{MODEL}, mamba_full_memory_ratio: 1e-6", {}, "no room for a state of 19316736 bytes"),
        ("max_mamba_cache_size: 2000", {}, "2000 states leave no room for KV"),
        ("max_mamba_cache_size: 4", {}, "4 states are less than the 5 of one running request"),
        (f"{MODEL}, mem_fraction_static: 0.3", {}, "does not fit"),
        (MODEL, {"tp": "4, pp: 2"}, "is not simulated with latency.pp above 1"),
        (MODEL, {"model": "Qwen/Qwen3.5-27B", "tp": 12}, "12 does not divide the 16 key heads"),
    ],
)
def test_states_that_do_not_fit_are_one_line(keys, options, reason):
    with pytest.raises(InputError, match=reason) as error:
        built(keys, **options)
    assert "\n" not in str(error.value)


def test_states_need_a_model_and_a_gpu():
    text = _SCENARIO.format(model=NEXT, tp=4, rows=9, keys=f"{MODEL}, max_total_tokens: 6400")
    text = text.replace("hardware: h100-sxm", "").replace("roofline, tp: 4", "linear, step_s: 1e-2")
    zero = "per_prefill_token_s: 0, per_decode_request_s: 0, per_context_token_s: 0"
    text = text.replace("step_s: 1e-2", f"step_s: 1e-2, {zero}")
    with pytest.raises(InputError, match="max_mamba_cache_size: must be a number without model"):
        build(load_scenario_text(text))

"""Prefill and decode servers of vLLM together, with random settings, loads and links."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from sim.commands.running.simulate import simulate_built
from sim.des.servers import RunOptions
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text

SETTINGS = st.fixed_dictionaries(
    {
        "block_size": st.sampled_from([1, 4, 16]),
        "max_num_seqs": st.sampled_from([1, 3, 16]),
        "enable_prefix_caching": st.booleans(),
        "scheduling_policy": st.sampled_from(["fcfs", "priority"]),
        "async_scheduling": st.booleans(),
        "scheduler_reserve_full_isl": st.booleans(),
        "kv_load_failure_policy": st.sampled_from(["fail", "recompute"]),
        "watermark": st.sampled_from([0.0, 0.1]),
        "long_prefill_token_threshold": st.sampled_from([0, 20]),
    }
)
LINKS = st.fixed_dictionaries(
    {
        "bandwidth_gb_s": st.sampled_from([0.001, 0.1, 10]),
        "latency_s": st.sampled_from([0, 0.003]),
        "failure_rate": st.sampled_from([0, 0.2]),
        "max_retries": st.sampled_from([0, 1]),
    }
)

DRAFTS = st.sampled_from(
    [
        {},
        {"method": "ngram", "num_speculative_tokens": 2},
        {"method": "eagle", "num_speculative_tokens": 3},
        {"method": "draft_model", "num_speculative_tokens": 1},
    ]
)
WINDOW = {"kind": "sliding_window", "sliding_window": 20}
GROUPS = st.sampled_from(
    [
        [],
        [{"kind": "full_attention"}, WINDOW],
        [WINDOW],
        [{"kind": "full_attention"}, {"kind": "mamba", "count": 2}],
        [{"kind": "mamba"}, {"kind": "full_attention"}, WINDOW],
    ]
)
GIVING_UP = {"give_up": {"share": 0.5, "after_s": {"kind": "exponential", "mean": 0.2}}}


@st.composite
def scenarios(draw, *, parts=False):
    """`parts`: some have drafts, windows or states."""
    settings, link = draw(SETTINGS), draw(LINKS)
    longest, step_tokens = 100, [16, 40, 300]
    blocks = -(-longest // settings["block_size"]) + 1
    more = {}
    if parts:
        drafts, groups = draw(DRAFTS), draw(GROUPS)
        if drafts:
            settings["speculative_config"] = drafts
            settings["async_scheduling"] &= drafts["method"] != "ngram"
            settings["long_prefill_token_threshold"] = 0
            if drafts["method"] == "draft_model":
                # A step must have tokens beside those of the draft model.
                step_tokens = [40, 300]
            more["acceptance"] = {"rate": draw(st.sampled_from([0.0, 0.6, 1.0]))}
        if groups:
            settings["kv_cache_groups"] = groups
        # Room for the first step with drafts beside the longest prompt.
        blocks = 12 * (blocks + 2)
    pools = {
        role: {
            "role": role,
            "replicas": draw(st.integers(1, 2)),
            "scheduler": {
                "num_gpu_blocks_override": blocks + draw(st.integers(0, blocks)),
                "max_num_batched_tokens": draw(st.sampled_from(step_tokens)),
            },
        }
        for role in ("prefill", "decode")
    }
    return {
        "name": "disaggregated",
        "seed": draw(st.integers(0, 99)),
        "latency": {
            "kind": "linear", "step_s": 0.005, "per_prefill_token_s": 0.00004,
            "per_decode_request_s": 0.0001, "per_context_token_s": 0.0,
        },
        "workload": {
            "kind": "synthetic",
            "num_requests": 20,
            "arrivals": {"kind": "poisson", "rate_rps": draw(st.sampled_from([20, 200]))},
            "prompt_tokens": {"kind": "uniform", "min": 1, "max": 60},
            "output_tokens": {"kind": "uniform", "min": 1, "max": 38},
            **draw(st.sampled_from([{}, GIVING_UP])),
        },
        "scheduler": {"family": "vllm", "max_model_len": longest, **settings},
        "pools": pools,
        **more,
        "transfer": {"bytes_per_token": 10_000, **link},
    }  # fmt: skip


def served(scenario, *, fast_forward, check):
    """The run log's requests, and the decision log's lines."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "decisions.jsonl"
        built = build(load_scenario_text(json.dumps(scenario), base_dir=Path(folder)))
        options = RunOptions(fast_forward=fast_forward, check=check, decisions=path)
        return simulate_built(built, options), path.read_bytes()


@given(scenarios())
def test_disaggregated_every_request_ends_and_fast_forward_changes_nothing(scenario):
    """All invariants hold after every step. Requests fail only if their KV was lost, or if their
    clients give up."""
    log, stepwise = served(scenario, fast_forward=False, check=True)
    _, fast = served(scenario, fast_forward=True, check=False)
    assert fast == stepwise
    assert_all_end(scenario, log)


@given(scenarios(parts=True))
def test_disaggregated_drafts_windows_and_states_go_together(scenario):
    """The same with drafts, windows and states on both servers, in any combination."""
    assert_all_end(scenario, served(scenario, fast_forward=True, check=True)[0])


def assert_all_end(scenario, log):
    """Each request has its answer, or a reason not to."""
    requests = log.requests
    gives_up = "give_up" in scenario["workload"]
    fails = scenario["scheduler"]["kv_load_failure_policy"] == "fail"
    for row, status in enumerate(requests.status):
        if status == "aborted":
            assert gives_up or (fails and log.meta["transfers"]["num_failed"])
        else:
            assert status == "finished"
            assert requests.output_tokens[row] > 0
            assert requests.scheduled_ns[row] < requests.first_token_ns[row]

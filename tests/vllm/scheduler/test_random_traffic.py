"""Random requests on small servers of family vllm: all are served, within every limit."""

from hypothesis import given
from hypothesis import strategies as st

from sim.vllm.config import VllmConfig
from sim.workload.workload import listed
from tests.support.serve import serve
from tests.support.workloads import scripted


@st.composite
def requests(draw):
    """Prompts of one or two pieces, many of them shared; some continue another's answer."""
    number = draw(st.integers(0, 3))
    pieces = [(number, draw(st.integers(1, 20)))]
    if draw(st.booleans()):
        pieces.append((draw(st.sampled_from((7, 8, 100 + number))), draw(st.integers(1, 12))))
    output = draw(st.integers(1, 12))
    return pieces, {
        "output": output,
        "limit": draw(st.sampled_from((output, output + 3, 2 * output))),
        "arrival_ns": draw(st.integers(0, 40)) * 2_500_000,
        "priority": draw(st.integers(-2, 3)),
        "ignore_eos": draw(st.booleans()),
        "output_seed": draw(st.sampled_from((7, 8))),
    }


@st.composite
def configs(draw):
    """Pools with room for one long request, or for a few.

    If requests with equal priority and arrival could preempt each other for ever
    (test_livelock.py), the settings admit whole prompts only.
    """
    policy = draw(st.sampled_from(("fcfs", "priority")))
    block_size = draw(st.sampled_from((1, 2, 4, 16)))
    num_blocks = -(-60 // block_size) + draw(st.integers(0, 60 // block_size))
    slots = draw(st.integers(1, 8))
    return VllmConfig(
        max_num_batched_tokens=slots + draw(st.sampled_from((0, 7, 60))),
        max_num_seqs=slots,
        max_model_len=60,
        block_size=block_size,
        num_gpu_blocks=num_blocks + 1,
        enable_prefix_caching=draw(st.booleans()),
        long_prefill_token_threshold=draw(st.sampled_from((0, 1, 5))),
        scheduling_policy=policy,
        async_scheduling=draw(st.booleans()),
        scheduler_reserve_full_isl=policy == "priority" or draw(st.booleans()),
    )


@given(configs(), st.lists(requests(), min_size=1, max_size=15))
def test_random_traffic_is_served_within_all_limits(config, drawn):
    """Every output has its length; no step has more tokens or rows than allowed."""
    drawn = sorted(drawn, key=lambda request: request[1]["arrival_ns"])
    workload = listed(
        [scripted(f"r{i}", *pieces, **facts) for i, (pieces, facts) in enumerate(drawn)]
    )
    served = serve(workload, config)
    for i, (_, facts) in enumerate(drawn):
        wanted = facts["limit"] if facts["ignore_eos"] else min(facts["output"], facts["limit"])
        request = served.request(f"r{i}")
        assert request["status"] == "finished"
        assert request["output_tokens"] == wanted
    for step in served.steps:
        num_tokens = sum(extend for _, _, extend in step["prefill"]) + step["n_decode"]
        assert 0 < num_tokens <= config.max_num_batched_tokens
        assert len(step["prefill"]) + step["n_decode"] <= step["running"] <= config.max_num_seqs
        assert step["free"] + step["used"] == config.pool_tokens

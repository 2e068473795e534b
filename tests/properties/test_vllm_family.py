"""What holds for every server of family vllm, for all traffic and pool sizes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.vllm.config import VllmConfig
from sim.workload.workload import listed
from tests.support.random_scenarios import random_scenarios
from tests.support.random_vllm_configs import vllm_configs
from tests.support.serve import linear_latency, serve
from tests.support.workloads import scripted

MS = 1_000_000
policies = pytest.mark.parametrize("policy", ["fcfs", "priority"])


# The front end lets everybody in.
UNLIMITED = {"max_num_queued_reqs": None, "max_num_queued_tokens": None}


def scripts_of(workload):
    """Every request of a workload, by rid."""
    turns = [turn.request for client in workload.clients for turn in client]
    return {request.spec.rid: request for request in [*workload.arrivals(), *turns]}


@given(random_scenarios(vllm_configs()))
def test_vllm_any_scenario_gives_every_request_its_output(scenario):
    """A prompt that fills the model's length is rejected; everybody else ends where it should."""
    config = replace(scenario.config, **UNLIMITED)
    served = serve(scenario.workload, config, scenario.latencies(), check=False)
    scripts, columns = scripts_of(scenario.workload), served.log.requests
    assert sorted(columns.rid) == sorted(scripts)
    for row, rid in enumerate(columns.rid):
        spec, script = scripts[rid].spec, scripts[rid].script
        room = scenario.config.max_model_len - len(spec.prompt)
        limit = min(spec.max_new_tokens, room)
        wanted = limit if spec.ignore_eos else min(limit, script.num_tokens)
        assert columns.status[row] == ("finished" if room > 0 else "rejected")
        assert columns.output_tokens[row] == max(wanted, 0)
        assert columns.retractions[row] == 0


@given(random_scenarios(vllm_configs()))
def test_vllm_any_scenario_keeps_within_budget_and_seats(scenario):
    """New tokens of a step, rows, running requests; whoever was preempted is in the log."""
    config = scenario.config
    served = serve(scenario.workload, config, scenario.latencies(), check=False)
    for step in served.steps:
        new_tokens = [extend_len for _, _, extend_len in step["prefill"]]
        assert sum(new_tokens) + step["n_decode"] <= config.max_num_batched_tokens
        assert len(new_tokens) + step["n_decode"] <= step["running"] <= config.max_num_seqs
        if config.long_prefill_token_threshold and not config.rules.spares_lone_request:
            assert max(new_tokens, default=0) <= config.long_prefill_token_threshold
    logged = sum(len(victims) for step in served.steps for _, victims in step["preempted"])
    assert logged == int(served.log.requests.preemptions.sum())


@policies
@given(
    lengths=st.lists(
        st.tuples(st.integers(1, 50), st.integers(1, 60), st.integers(0, 2)),
        min_size=1,
        max_size=12,
    ),
    config=vllm_configs(),
    at_once=st.booleans(),
)
def test_progress_vllm_pool_for_one_request_serves_them_all(policy, lengths, config, at_once):
    """INV-8: preempted over and over, in a pool for the longest request alone; ties included."""
    longest = max(prompt + output for prompt, output, _ in lengths)
    num_blocks = -(-longest // config.block_size)
    config = replace(
        config,
        scheduling_policy=policy,
        max_model_len=longest,
        **UNLIMITED,
        num_gpu_blocks=num_blocks + 1,
        max_num_batched_tokens=config.max_num_batched_tokens
        if config.enable_chunked_prefill
        else max(config.max_num_batched_tokens, longest),
    )
    requests = [
        scripted(f"r{i}", (i, prompt), output=output, priority=priority, arrival_ns=i * arrival_ns)
        for arrival_ns in [0 if at_once else 3 * MS]
        for i, (prompt, output, priority) in enumerate(lengths)
    ]
    served = serve(listed(requests), config)
    assert served.log.requests.status == ["finished"] * len(lengths)
    assert served.log.requests.output_tokens.tolist() == [output for _, output, _ in lengths]


@given(random_scenarios(vllm_configs()))
def test_priority_with_nothing_to_choose_by_is_first_come_first_served(scenario):
    """Equal values and no two arrivals at once: the same decisions."""
    requests = [
        request.sent_at(at_ns) for at_ns, request in enumerate(scenario.workload.arrivals())
    ]
    for request in requests:
        request.spec.priority = 3
    logs = [
        serve(
            listed(requests),
            replace(scenario.config, scheduling_policy=policy),
            scenario.latencies(),
            check=False,
        ).text
        for policy in ("fcfs", "priority")
    ]
    assert logs[0] == logs[1]


@given(random_scenarios(vllm_configs()), st.booleans())
def test_reservation_and_threshold_out_of_reach_change_nothing(scenario, reserve):
    """In a pool with room for everybody; a threshold as large as the budget."""
    roomy = replace(scenario.config, num_gpu_blocks=20_000)
    runs = [
        serve(scenario.workload, config, scenario.latencies(), check=False)
        for config in (
            replace(roomy, long_prefill_token_threshold=0, scheduler_reserve_full_isl=True),
            replace(
                roomy,
                long_prefill_token_threshold=roomy.max_num_batched_tokens + 1,
                scheduler_reserve_full_isl=reserve,
            ),
        )
    ]
    assert runs[0].text == runs[1].text
    assert runs[0].log.requests.preemptions.sum() == 0


@given(st.lists(st.tuples(st.integers(1, 80), st.integers(1, 30)), min_size=1, max_size=15))
def test_cache_that_finds_nothing_changes_nothing(lengths):
    """Prompts of their own, and room for them all."""
    requests = [
        scripted(f"r{i}", (i, prompt), output=output, arrival_ns=i * 4 * MS)
        for i, (prompt, output) in enumerate(lengths)
    ]
    texts = [
        serve(
            listed(requests),
            VllmConfig(max_num_batched_tokens=128, enable_prefix_caching=caches),
            [linear_latency()],
        ).text
        for caches in (True, False)
    ]
    assert texts[0] == texts[1]

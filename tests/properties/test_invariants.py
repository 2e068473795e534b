"""The invariants of docs/explanation/invariants.md on random scenarios, also with tiny pools."""

import itertools
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.sglang.config import SchedulerConfig
from sim.workload.workload import listed
from tests.support.random_scenarios import random_scenarios
from tests.support.serve import serve
from tests.support.workloads import scripted

REPOSITORY = Path(__file__).parents[2]


@given(random_scenarios(phases=True, impatient=True))
def test_invariants_any_scenario_hold_at_every_step(scenario):
    """INV-1 to 5, 8, 10, 11: `check` finds nothing, and every request comes to an end."""
    served = serve(
        scenario.workload, scenario.config, scenario.latencies(), fast_forward=False, check=True
    )
    assert served.num_ended == scenario.workload.num_requests
    check_times(served, scenario.replicas)
    check_tokens(served, scenario.config.pool_tokens)


def check_times(served, num_replicas):
    """A request's life is in order (INV-5); one device runs one step at a time (INV-3)."""
    requests = served.log.requests
    done = np.array([status == "finished" for status in requests.status], dtype=bool)
    assert (requests.arrival_ns[done] <= requests.scheduled_ns[done]).all()
    assert (requests.scheduled_ns[done] < requests.first_token_ns[done]).all()
    assert (requests.first_token_ns[done] <= requests.finish_ns[done]).all()
    assert (requests.output_tokens[done] >= 1).all()
    assert (requests.cached_tokens[done] < requests.prompt_tokens[done]).all()
    for replica in range(num_replicas):
        steps = [step for step in served.steps if step["replica"] == replica]
        assert [step["step"] for step in steps] == list(range(len(steps)))
        for before, after in itertools.pairwise(steps):
            assert before["t_start_ns"] < before["t_end_ns"] <= after["t_start_ns"]


def check_tokens(served, pool_tokens):
    """Every generated token is a gap or a first token; pages sum to the pool in every line."""
    requests = served.log.requests
    num_first = int((requests.first_token_ns >= 0).sum())
    num_gaps = int(served.log.token_gaps.count.sum())
    assert num_first + num_gaps == int(requests.output_tokens.sum())
    for step in served.steps:
        assert step["free"] + step["evictable"] + step["used"] == pool_tokens


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 60)), min_size=1, max_size=12),
    st.sampled_from((1, 4, 16)),
    st.booleans(),
    st.booleans(),
)
def test_progress_pool_for_one_request_serves_them_all(lengths, page_size, overlap, no_cache):
    """INV-8: a pool in which only the longest request fits alone still serves everybody."""
    longest = max(-(-prompt // page_size) * page_size + output for prompt, output in lengths)
    config = SchedulerConfig(
        page_size=page_size,
        max_total_tokens=longest + 2 * page_size + 6,
        chunked_prefill_size=16,
        disable_overlap_schedule=not overlap,
        disable_radix_cache=no_cache,
    )
    requests = [
        scripted(f"r{i}", (i, prompt), output=output) for i, (prompt, output) in enumerate(lengths)
    ]
    served = serve(listed(requests), config)
    assert served.log.requests.status == ["finished"] * len(lengths)
    assert served.log.requests.output_tokens.tolist() == [output for _, output in lengths]

"""Rows in lockstep are decided as they would be one by one, in family vllm."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sim.vllm.version_rules import NEWEST
from tests.properties.test_offloading import offload_settings, tiered
from tests.properties.test_server_pools import deployments, outcome, vllm_sides
from tests.support.random_scenarios import random_scenarios
from tests.support.random_vllm_configs import vllm_configs
from tests.support.serve import serve


def facts(served):
    """The log, with equal gaps between tokens counted together."""
    text, columns, gaps_ns, counts, *_ = outcome(served)
    gaps = Counter()
    for gap_ns, count in zip(gaps_ns, counts, strict=True):
        gaps[gap_ns] += count
    return text, columns, gaps


def run(scenario, *, fast_forward=False, **changed):
    return serve(
        scenario.workload,
        replace(scenario.config, **changed),
        scenario.latencies(),
        host=scenario.host,
        num_front_ends=scenario.front_ends,
        fast_forward=fast_forward,
        check=not fast_forward,
    )


@given(random_scenarios(vllm_configs(), impatient=True))
def test_rows_in_lockstep_are_decided_as_they_are_one_by_one(scenario):
    """Every field of every step, every request and every gap between tokens."""
    assert facts(run(scenario)) == facts(run(scenario, in_lockstep=False))


@given(
    random_scenarios(vllm_configs(), impatient=True),
    offload_settings() | tiered(),
    st.sampled_from((1, 1, 2)),
)
def test_rows_in_lockstep_beside_cpu_memory_are_decided_as_one_by_one(scenario, settings, ranks):
    """As long as no outputs are kept there; and many steps at once as one after the other."""
    scenario = replace(scenario, ranks=ranks)
    memory = {"offload": replace(settings, offload_prompt_only=True), "version": NEWEST}
    lockstep = facts(run(scenario, **memory))
    assert lockstep == facts(run(scenario, **memory, in_lockstep=False))
    assert lockstep == facts(run(scenario, **memory, fast_forward=True))


@given(deployments(vllm_sides(), impatient=True), st.booleans(), st.none() | offload_settings())
def test_servers_of_other_roles_decide_the_same_in_lockstep(disaggregated, both, memory):
    """One of the pools, or both, go row by row; some have CPU memory, too."""
    if memory is not None and disaggregated.decode.version == NEWEST:
        offload = replace(memory, offload_prompt_only=True)
        disaggregated = replace(
            disaggregated,
            prefill=replace(disaggregated.prefill, offload=offload),
            decode=replace(disaggregated.decode, offload=offload),
        )
    one_by_one = replace(
        disaggregated,
        decode=replace(disaggregated.decode, in_lockstep=False),
        prefill=replace(disaggregated.prefill, in_lockstep=not both),
    )
    assert facts(disaggregated.run(fast_forward=False, check=True)) == facts(
        one_by_one.run(fast_forward=False, check=True)
    )

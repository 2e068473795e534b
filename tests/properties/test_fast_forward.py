"""INV-12: passing many decode steps at once leaves the same log as taking them one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.engine.page_pool import PageIds
from sim.sglang.config import SchedulerConfig
from sim.vllm.config import VllmConfig
from sim.workload.workload import listed
from tests.support.random_scenarios import RandomScenario, random_scenarios
from tests.support.random_vllm_configs import vllm_configs
from tests.support.serve import serve
from tests.support.workloads import scripted


def outcome(scenario: RandomScenario, **how):
    served = serve(
        scenario.workload,
        scenario.config,
        scenario.latencies(),
        host=scenario.host,
        num_front_ends=scenario.front_ends,
        check=False,
        **how,
    )
    columns = served.log.requests
    gaps = served.log.token_gaps
    return (
        served.text,
        columns.scheduled_ns.tolist(),
        columns.output_tokens.tolist(),
        gaps.gap_ns.tolist(),
        gaps.count.tolist(),
        served.summary,
    )


@given(random_scenarios(phases=True, impatient=True))
def test_fast_forward_any_scenario_leaves_the_same_log(scenario):
    """Every byte of the decision log, every token gap and figure; all families and policies.

    Nor does it matter whether pages have names.
    """
    log = outcome(scenario)
    assert log == outcome(scenario, fast_forward=False)
    assert log == outcome(scenario, pool=PageIds)


def test_fast_forward_long_decode_takes_few_runs():
    """A lone request's decode steps pass in one run, not one by one."""
    request = scripted("r", (1, 100), output=500)
    served = serve(listed([request]), SchedulerConfig())
    assert len(served.steps) == 500
    assert len(served.log.steps.num_steps) <= 3


@pytest.mark.parametrize("overlap", [False, True])
def test_fast_forward_arrival_within_a_run_is_seen_at_the_next_decision(overlap):
    """A request that arrives while steps pass starts when it would have, step by step."""
    first = scripted("a", (1, 100), output=400)
    second = scripted("b", (2, 50), output=3, arrival_ns=777_777_777)
    config = SchedulerConfig(disable_overlap_schedule=not overlap)
    served = serve(listed([first, second]), config)
    waited_ns = served.request("b")["scheduled_ns"] - 777_777_777
    assert 0 <= waited_ns < 6_000_000


@st.composite
def quoting_requests(draw):
    """Requests that quote others' prompts and answers, also of those that still run."""
    requests = []
    for i in range(draw(st.integers(2, 12))):
        text = draw(st.integers(1, 2))
        segments = [(text, draw(st.sampled_from((1, 8, 8, 8, 20))))]
        if draw(st.booleans()):
            segments.append((1 << 20 | text, draw(st.integers(1, 60))))
        if draw(st.booleans()):
            segments.append((100 + i, draw(st.integers(1, 40))))
        output, seed = draw(st.integers(1, 60)), 1 << 20 | text
        arrival_ns = i * draw(st.sampled_from((0, 1_000_000, 30_000_000)))
        requests.append(
            scripted(f"r{i}", *segments, output=output, arrival_ns=arrival_ns, output_seed=seed)
        )
    return sorted(requests, key=lambda request: request.spec.arrival_ns)


@given(quoting_requests(), vllm_configs())
def test_fast_forward_while_the_head_waits_for_blocks(requests, config):
    """Decoding may fill blocks that the waiting request looks for, or take those it has found."""
    scenario = RandomScenario(listed(requests), config, 1, 0.005, 0.0)
    assert outcome(scenario)[:-1] == outcome(scenario, fast_forward=False)[:-1]


@pytest.mark.parametrize(
    ("num_blocks", "num_quoted", "num_more"), [(9, 20, 1), (10, 6, 20), (11, 30, 1)]
)
def test_fast_forward_head_that_quotes_a_running_answer_is_admitted_before_its_end(
    num_blocks, num_quoted, num_more
):
    """The answer's first block is one that the head finds: now it fits, for one decision."""
    answered = scripted("a", (1, 8), output=40, output_seed=5)
    quoting = scripted("b", (1, 8), (5, num_quoted), (9, num_more), output=3, arrival_ns=1_000_000)
    config = VllmConfig(
        block_size=4,
        num_gpu_blocks=num_blocks,
        max_model_len=4 * num_blocks - 4,
        async_scheduling=False,
    )
    for fast_forward in (True, False):
        served = serve(listed([answered, quoting]), config, fast_forward=fast_forward)
        assert served.request("b")["cached_tokens"] == 12
        assert served.request("b")["scheduled_ns"] < served.request("a")["finish_ns"] // 4


def test_fast_forward_while_the_head_waits_takes_few_runs():
    """The second request has no room until the first one ends."""
    requests = [scripted("a", (1, 100), output=400), scripted("b", (2, 450), output=50)]
    served = serve(listed(requests), VllmConfig(num_gpu_blocks=34, max_model_len=512))
    assert served.request("b")["scheduled_ns"] >= served.request("a")["finish_ns"]
    assert len(served.steps) == 450
    assert len(served.log.steps.num_steps) <= 6

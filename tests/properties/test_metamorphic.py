"""Relations between runs: what must not matter, and what must scale."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sim.latency.kinds.recorded import RecordedLatency
from sim.latency.model import launching
from sim.sglang.config import SchedulerConfig
from sim.sglang.scheduler.waiting.fairness import FairnessT
from sim.vllm.config import VllmConfig
from sim.workload.workload import Turn, listed
from tests.support.random_scenarios import random_scenarios
from tests.support.serve import linear_latency, serve
from tests.support.workloads import scripted

_PLENTY_TOKENS = 100_000


def with_pool(config, num_tokens):
    """The same settings with pages of 4 tokens, and a pool of `num_tokens` tokens."""
    if isinstance(config, VllmConfig):
        return replace(config, num_gpu_blocks=num_tokens // 4 + 1, block_size=4)
    assume(config.chunked_prefill_size == -1 or config.chunked_prefill_size % 4 == 0)
    return replace(config, max_total_tokens=num_tokens, page_size=4)


@given(scenario=random_scenarios(), factor=st.integers(2, 50))
def test_pool_too_large_to_evict_hits_do_not_depend_on_its_size(scenario, factor):
    """Twice or fifty times more memory than ever needed: the same run."""
    runs = [
        serve(scenario.workload, config, scenario.latencies(), check=False).log.requests
        for config in (with_pool(scenario.config, times * _PLENTY_TOKENS) for times in (1, factor))
    ]
    for name in ("cached_tokens", "output_tokens", "scheduled_ns", "finish_ns"):
        assert getattr(runs[0], name).tolist() == getattr(runs[1], name).tolist()


class DoubledLatency:
    """Twice the times of another model."""

    def __init__(self, model):
        self.model = model

    def step_ns(self, step):
        time = self.model.step_ns(step)
        return type(time)(2 * time.device_ns, 2 * time.host_ns)

    def decode_run_ns(self, first, num_steps):
        device_ns, host_ns = self.model.decode_run_ns(first, num_steps)
        return 2 * device_ns, 2 * host_ns

    def launch_ns(self, step):
        known = launching(self.model)
        return 0 if known is None else 2 * known.launch_ns(step)

    def consume(self, first, num_steps):
        self.model.consume(first, num_steps)


def doubled(workload):
    """The same traffic with all times doubled."""

    turns = [[Turn(2 * t.think_ns, t.request) for t in client] for client in workload.clients]
    return listed([r.sent_at(2 * r.spec.arrival_ns) for r in workload.arrivals()], turns)


def with_doubled_times(config):
    """The same settings with all times doubled. vLLM's settings have no times."""
    if isinstance(config, VllmConfig):
        return config
    if isinstance(config.fairness, FairnessT):
        config = replace(config, fairness=FairnessT(2 * config.fairness.t_ns))
    static = config.static_batching
    if static is not None:
        static = replace(static, max_wait_ns=2 * static.max_wait_ns)
    host = config.host_cache
    if host is not None:
        host = replace(host, copy_ns_per_token=2 * host.copy_ns_per_token)
    return replace(config, static_batching=static, host_cache=host)


@given(random_scenarios())
def test_time_twice_as_slow_doubles_every_time(scenario):
    """No policy but a time-aware one may notice; there is none among these."""
    usual = serve(scenario.workload, scenario.config, scenario.latencies(), check=False).log
    slow_latencies = [DoubledLatency(model) for model in scenario.latencies()]
    config = with_doubled_times(scenario.config)
    slow = serve(doubled(scenario.workload), config, slow_latencies, check=False).log
    for name in ("arrival_ns", "scheduled_ns", "first_token_ns", "finish_ns"):
        times_ns = getattr(usual.requests, name)
        expected_ns = np.where(times_ns >= 0, 2 * times_ns, times_ns)
        assert getattr(slow.requests, name).tolist() == expected_ns.tolist()
    assert slow.requests.rid == usual.requests.rid
    assert slow.requests.status == usual.requests.status
    assert slow.token_gaps.gap_ns.tolist() == (2 * usual.token_gaps.gap_ns).tolist()
    assert slow.token_gaps.count.tolist() == usual.token_gaps.count.tolist()


@given(random_scenarios())
def test_replay_of_recorded_times_gives_the_same_log(scenario):
    """INV-9: fed with a run's own step times, a new engine decides the same."""
    assume(scenario.replicas == 1)
    # Recorded host times contain what a decision waited for copies, and it would wait again.
    host_cache = getattr(scenario.config, "host_cache", None)
    assume(host_cache is None or not host_cache.copy_ns_per_token)
    first = serve(scenario.workload, scenario.config, scenario.latencies(), check=False)
    assume(first.steps)
    device_ns = np.array([step["t_end_ns"] - step["t_start_ns"] for step in first.steps])
    host_ns = np.array([step["host_ns"] for step in first.steps])
    launch_ns = np.array([step.get("launch_ns", 0) for step in first.steps])
    replayed = RecordedLatency("recording", device_ns, host_ns, launch_ns)
    second = serve(scenario.workload, scenario.config, [replayed], check=False)
    assert second.text == first.text


@pytest.mark.parametrize("overlap", [False, True])
def test_script_after_a_step_has_no_say_before_it(overlap):
    """INV-7: two workloads that differ in an output's end decide alike until it shows."""
    config = SchedulerConfig(max_total_tokens=400, disable_overlap_schedule=not overlap)
    runs = []
    for output in (12, 25):
        requests = [
            scripted(f"r{i}", (i, 40), output=30, limit=60, arrival_ns=i * 10**7) for i in range(6)
        ]
        requests.append(scripted("x", (9, 30), output=output, limit=60))
        requests.sort(key=lambda request: request.spec.arrival_ns)
        runs.append(serve(listed(requests), config, [linear_latency()]))
    ends_ns = runs[0].request("x")["finish_ns"]
    before = [[s for s in run.steps if s["t_end_ns"] <= ends_ns] for run in runs]
    assert before[0] == before[1]
    assert len(before[0]) > 10
    assert runs[0].steps != runs[1].steps

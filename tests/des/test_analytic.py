"""Analytic anchor: one slot and constant service make the server an M/D/1 or D/D/1 queue."""

import numpy as np
import pytest
from scipy import stats

from sim.des.deployment import Deployment
from sim.des.run import simulate
from sim.sglang.config import SchedulerConfig
from sim.workload.workload import listed
from tests.support.serve import linear_latency
from tests.support.workloads import scripted

_SERVICE_NS = 10_000_000
_NUM_BATCHES = 12
_BATCH_REQUESTS = 2_000
_WARM_UP_REQUESTS = 200
_CONFIG = SchedulerConfig(
    max_running_requests=1, disable_radix_cache=True, disable_overlap_schedule=True
)


def waits_ns(arrivals_ns, output_tokens=1):
    """Time from arrival to the first step; each request takes `_SERVICE_NS` in equal steps."""
    requests = [
        scripted(f"r{i}", (1, 5), output=output_tokens, arrival_ns=arrival_ns)
        for i, arrival_ns in enumerate(arrivals_ns.tolist())
    ]
    latency = linear_latency(
        step_s=_SERVICE_NS / 1e9 / output_tokens,
        per_prefill_token_s=0,
        per_decode_request_s=0,
        per_context_token_s=0,
    )
    columns = simulate(listed(requests), Deployment.of_one_kind(_CONFIG, [latency])).requests
    assert (columns.finish_ns - columns.scheduled_ns == _SERVICE_NS).all()
    return columns.scheduled_ns - columns.arrival_ns


@pytest.mark.parametrize(("load", "output_tokens"), [(0.5, 1), (0.8, 1), (0.8, 2)])
def test_md1_mean_wait_agrees_with_theory(load, output_tokens):
    """rho S / (2 (1 - rho)) lies within the 99 % interval of the batch means."""
    means_ns = []
    for seed in range(_NUM_BATCHES):
        rng = np.random.default_rng(seed)
        gaps_ns = rng.exponential(_SERVICE_NS / load, _BATCH_REQUESTS)
        arrivals_ns = np.cumsum(np.rint(gaps_ns).astype(np.int64))
        means_ns.append(waits_ns(arrivals_ns, output_tokens)[_WARM_UP_REQUESTS:].mean())
    expected_ns = load * _SERVICE_NS / (2 * (1 - load))
    mean_ns, error_ns = np.mean(means_ns), stats.sem(means_ns)
    half_width_ns = stats.t.ppf(0.995, _NUM_BATCHES - 1) * error_ns
    assert abs(mean_ns - expected_ns) < half_width_ns
    # Narrow enough to tell M/D/1 from M/M/1, whose requests wait twice as long.
    assert half_width_ns < 0.25 * expected_ns


@pytest.mark.parametrize("gap_ns", [_SERVICE_NS * 2, _SERVICE_NS + 1, _SERVICE_NS])
def test_dd1_up_to_saturation_nobody_waits(gap_ns):
    """Even at full load: a request arrives in the instant its predecessor leaves."""
    assert not waits_ns(np.arange(200) * gap_ns).any()


def test_dd1_overload_waits_grow_by_the_shortfall():
    """Each request waits a nanosecond longer than the one before."""
    assert waits_ns(np.arange(200) * (_SERVICE_NS - 1)).tolist() == list(range(200))

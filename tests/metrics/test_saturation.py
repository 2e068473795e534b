"""Saturation of queues with a known load."""

import numpy as np
import pytest

from sim.metrics.rates import is_saturated
from tests.support.run_logs import request_columns, run_log
from tests.support.toy_server import toy_log

SERVICE_NS = 50_000_000


def single_server_log(load, *, num_requests=1_500, seed=0, last_first=False):
    """M/D/1: Poisson arrivals, constant service, one at a time."""
    rng = np.random.default_rng(seed)
    arrival_ns = np.cumsum(rng.exponential(SERVICE_NS / load, num_requests)).astype(np.int64)
    start_ns = np.zeros(num_requests, dtype=np.int64)
    waiting, upcoming, now_ns = [], 0, 0
    for _ in range(num_requests):
        if not waiting:
            now_ns = max(now_ns, int(arrival_ns[upcoming]))
        while upcoming < num_requests and arrival_ns[upcoming] <= now_ns:
            waiting.append(upcoming)
            upcoming += 1
        row = waiting.pop(-1 if last_first else 0)
        start_ns[row] = now_ns
        now_ns += SERVICE_NS
    end_ns = start_ns + SERVICE_NS
    return run_log(
        request_columns(
            arrival_ns=arrival_ns, scheduled_ns=start_ns, first_token_ns=end_ns, finish_ns=end_ns
        )
    )


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_saturated_below_load_one_is_false(load, seed):
    """A stable queue, however long it grows now and then."""
    assert is_saturated(single_server_log(load, seed=seed)) is False


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("last_first", [False, True])
@pytest.mark.parametrize("load", [1.25, 2.0])
def test_saturated_above_load_one_is_true_in_any_order(load, last_first, seed):
    """More work arrives than is served; who is served first does not matter."""
    assert is_saturated(single_server_log(load, seed=seed, last_first=last_first)) is True


def test_saturated_batching_server_under_overload_is_true():
    """The same for a server of many slots that overtakes."""
    assert is_saturated(toy_log(1_000, rate_rps=18, prefers_cached=True)) is True
    assert is_saturated(toy_log(1_000, rate_rps=6, prefers_cached=True)) is False


def test_saturated_of_requests_never_scheduled_is_true():
    """Waiting that never ended counts up to the log's end."""
    arrival_ns = np.arange(100) * 10**9
    assert is_saturated(run_log(request_columns(arrival_ns=arrival_ns))) is True


@pytest.mark.parametrize("arrival_ns", [np.arange(39) * 10**9, np.zeros(100)])
def test_saturated_of_few_or_simultaneous_requests_is_undefined(arrival_ns):
    """Too little to tell growth from chance; a burst has no rate."""
    assert is_saturated(run_log(request_columns(arrival_ns=arrival_ns))) is None

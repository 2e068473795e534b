"""A run in equal windows: nothing is lost on the way to the file and back."""

import numpy as np
import pytest

from sim.metrics.latencies import request_latencies
from sim.metrics.rates import log_end_ns
from sim.metrics.summary import summarise
from sim.metrics.timeline import NUM_WINDOWS, timeline
from sim.report.run_folder import read_run, read_timeline, write_out_dir, write_timeline
from tests.support.run_logs import request_columns, run_log
from tests.support.toy_server import toy_log


@pytest.fixture(scope="module")
def log():
    return toy_log(120, rate_rps=12)


def test_timeline_holds_all_tokens_and_all_waiting(log):
    """Summed over the windows: tokens as logged, waits as the requests' own."""
    found = timeline(log)
    steps = log.steps
    assert len(found.t_s) == NUM_WINDOWS
    assert found.window_s * NUM_WINDOWS == pytest.approx(log_end_ns(log) / 1e9)
    assert found.prefill_tokens_per_s.sum() * found.window_s == pytest.approx(
        steps.num_prefill_tokens.sum()
    )
    decoded = (steps.num_decode_rows * steps.num_steps).sum()
    assert found.decode_tokens_per_s.sum() * found.window_s == pytest.approx(decoded)
    pool = found.used_tokens + found.evictable_tokens + found.free_tokens
    assert pool == pytest.approx(pool[-1])
    assert found.running.min() >= 0


def test_timeline_file_has_it_to_six_digits(log, tmp_path):
    """Every column; and of an empty run, a header alone."""
    found, path = timeline(log), tmp_path / "timeline.csv"
    write_timeline(found, path)
    again = read_timeline(path)
    assert again.used_tokens == pytest.approx(found.used_tokens, abs=1e-6)
    assert again.t_s == pytest.approx(found.t_s, abs=1e-6)
    write_timeline(timeline(run_log(request_columns())), path)
    assert len(read_timeline(path).t_s) == 0


def test_run_folder_gives_the_requests_back(log, tmp_path):
    """Time stamps to the nanosecond, through milliseconds in a file."""
    write_out_dir(log, summarise(log), tmp_path / "out", {"name": "a"})
    data = read_run(tmp_path / "out")
    for name in ("arrival_ns", "scheduled_ns", "first_token_ns", "finish_ns", "cached_tokens"):
        assert np.array_equal(getattr(data.log.requests, name), getattr(log.requests, name)), name
    assert np.array_equal(
        request_latencies(data.log.requests).ttft_ms, request_latencies(log.requests).ttft_ms
    )
    assert data.scenario == {"name": "a"}

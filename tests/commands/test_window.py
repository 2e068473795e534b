"""A warm-up of a scenario, on the command line."""

import pytest

SCENARIO = """
name: steady
latency: {kind: linear, step_s: 0.01, per_prefill_token_s: 0, per_decode_request_s: 0,
          per_context_token_s: 0}
scheduler: {max_total_tokens: 60000}
workload:
  kind: synthetic
  num_requests: 200
  arrivals: {kind: constant, rate_rps: 10}
  prompt_tokens: {kind: constant, value: 50}
  output_tokens: {kind: constant, value: 9}
"""


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(SCENARIO)
    return path


def test_window_shows_what_was_offered_beside_what_was_served(simulate, scenario):
    """Times count from the run's start."""
    ended = simulate("run", scenario, "--set", "warmup.requests=50", "--out", scenario.parent / "o")
    offered = "measured from 5.00 s to 19.90 s: 10.00 requests/s offered, 10.00 served"
    assert offered in ended.out
    assert simulate("report", scenario.parent / "o").code == 0


@pytest.mark.parametrize(
    ("warmup", "error"),
    [
        ("{requests: 5, duration_s: 2}", "give either duration_s or requests"),
        ("{}", "give either duration_s or requests"),
        ("{duration_s: 30}", "leaves no request to measure: 200 requests arrive within 19.9 s"),
    ],
)
def test_window_that_cannot_be_is_refused(simulate, scenario, warmup, error):
    """One line names the key."""
    ended = simulate("run", scenario, "--set", f"warmup={warmup}")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert f"warmup={warmup}: {error}" in ended.err

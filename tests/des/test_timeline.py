"""Times of many decode steps at once equal those of a loop; overlap hides the host time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.des.replicas.timeline import launched_steps, overlapped_steps, serial_steps
from sim.sglang.config import SchedulerConfig
from sim.workload.workload import listed
from tests.support.serve import linear_latency, serve
from tests.support.workloads import scripted

durations = st.lists(
    st.tuples(st.integers(1, 100), st.sampled_from((0, 1, 30, 99, 500))), min_size=1, max_size=40
)


def columns(rows):
    device_ns, host_ns = zip(*rows, strict=True)
    return np.array(device_ns, dtype=np.int64), np.array(host_ns, dtype=np.int64)


@given(end_ns=st.integers(0, 10**15), rows=durations)
def test_serial_steps_equal_a_loop(end_ns, rows):
    """Each is decided when the one before ends, and starts when the host is ready."""
    steps = serial_steps(end_ns, *columns(rows))
    now_ns = end_ns
    for i, (device_ns, host_ns) in enumerate(rows):
        assert steps.decided_ns[i] == steps.known_ns[i] == now_ns
        assert steps.starts_ns[i] == now_ns + host_ns
        now_ns += host_ns + device_ns
        assert steps.ends_ns[i] == now_ns
    assert steps.decided_ns[-1] == now_ns
    assert steps.host_ns.tolist() == [host_ns for _, host_ns in rows]


@given(decided_ns=st.integers(0, 10**15), ahead_ns=st.integers(0, 300), rows=durations)
def test_overlapped_steps_equal_a_loop(decided_ns, ahead_ns, rows):
    """Each starts when host and device are ready; then the next is decided."""
    end_ns = decided_ns + ahead_ns
    steps = overlapped_steps(decided_ns, end_ns, *columns(rows))
    for i, (device_ns, host_ns) in enumerate(rows):
        assert steps.decided_ns[i] == decided_ns
        start_ns = max(decided_ns + host_ns, end_ns)
        assert steps.starts_ns[i] == steps.known_ns[i] == start_ns
        end_ns = start_ns + device_ns
        assert steps.ends_ns[i] == end_ns
        decided_ns = start_ns
    assert steps.decided_ns[-1] == decided_ns
    arrays = (steps.decided_ns, steps.starts_ns, steps.ends_ns, steps.host_ns, steps.known_ns)
    assert {times.dtype for times in arrays} == {np.dtype(np.int64)}


@given(decided_ns=st.integers(0, 10**15), ahead_ns=st.integers(0, 300), rows=durations)
def test_launched_steps_without_launch_equal_overlapped_steps(decided_ns, ahead_ns, rows):
    """Steps of graphs are those whose launch takes no time of its own."""
    end_ns = decided_ns + ahead_ns
    usual = overlapped_steps(decided_ns, end_ns, *columns(rows))
    launched = launched_steps(decided_ns, end_ns, *columns(rows), 0)
    for name in ("decided_ns", "starts_ns", "ends_ns", "host_ns", "known_ns", "launch_ns"):
        assert np.array_equal(getattr(usual, name), getattr(launched, name)), name


_STEP_S = 0.005
_STEP_NS = 5_000_000


def decode_starts(*, host_s, overlap, num_tokens=50, fast_forward=True):
    """Starts of a lone request's decode steps, each of which takes the device 5 ms."""
    latency = linear_latency(
        step_s=_STEP_S,
        per_prefill_token_s=0,
        per_decode_request_s=0,
        per_context_token_s=0,
        host_s=host_s,
    )
    served = serve(
        listed([scripted("a", (1, 10), output=num_tokens)]),
        SchedulerConfig(disable_overlap_schedule=not overlap),
        [latency],
        fast_forward=fast_forward,
    )
    return [step["t_start_ns"] for step in served.steps], served


@pytest.mark.parametrize("fast_forward", [True, False])
@pytest.mark.parametrize(
    ("host_s", "overlap", "period_ns"),
    [
        (0.0, False, 5_000_000),
        (0.002, False, 7_000_000),
        (0.02, False, 25_000_000),
        (0.0, True, 5_000_000),
        (0.002, True, 5_000_000),
        (0.02, True, 20_000_000),
    ],
)
def test_host_time_adds_up_or_hides(host_s, overlap, period_ns, fast_forward):
    """Normal: host plus device a step. Overlapped: the larger of the two."""
    starts_ns, _ = decode_starts(host_s=host_s, overlap=overlap, fast_forward=fast_forward)
    assert starts_ns[0] == round(host_s * 1e9)
    assert set(np.diff(starts_ns)) == {period_ns}


@pytest.mark.parametrize("overlap", [True, False])
def test_host_time_delays_the_first_token(overlap):
    """The first step starts when the host has prepared it, and takes its device time."""
    _, served = decode_starts(host_s=0.003, overlap=overlap)
    assert served.request("a")["first_token_ns"] >= 3_000_000 + _STEP_NS
    assert served.log.steps.host_ns.sum() == 3_000_000 * served.log.steps.num_steps.sum()


def test_device_is_never_in_two_steps_at_once():
    """Overlap prepares steps ahead, it does not run them ahead."""
    starts_ns, served = decode_starts(host_s=0.002, overlap=True)
    ends_ns = [step["t_end_ns"] for step in served.steps]
    assert all(end <= start for end, start in zip(ends_ns, starts_ns[1:], strict=False))

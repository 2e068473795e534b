"""What overlap gains is the host's share of a step, until the host is slower than the device."""

import pytest

HOSTS_S = [0, 1e-3, 1.5e-3, 16e-3]
SWEEP = {
    "scheduler.disable_overlap_schedule": [True, False],
    "latency.host_s": HOSTS_S,
    "seeds": [1],
}


def test_overlap_gains_10_to_20_percent_where_the_host_takes_10_to_16(study):
    """The serial step is host + device, the overlapped one the longer: gain = host / device."""
    results = study("overlap", SWEEP, "workload.requests_per_client=4")

    def along(metric, *, off):
        return results.means(metric, "host_s", HOSTS_S, disable_overlap_schedule=off)

    serial, overlapped = (along("output_throughput", off=off) for off in (True, False))
    gain = [on / off - 1 for on, off in zip(overlapped, serial, strict=True)]
    steps = results.mean("simulated_steps", host_s=0, disable_overlap_schedule=True)
    device_s = results.mean("duration", host_s=0, disable_overlap_schedule=True) / steps
    assert gain[0] == pytest.approx(0, abs=0.02)
    assert 0.10 < gain[1] < gain[2] < 0.20
    for n in (1, 2):
        assert gain[n] == pytest.approx(HOSTS_S[n] / device_s, abs=0.02)
        assert 0.1 <= HOSTS_S[n] / (HOSTS_S[n] + device_s) <= 0.165
    # Host-bound: the device time is hidden.
    assert gain[3] == pytest.approx(device_s / HOSTS_S[3], abs=0.05)


def test_overlap_delays_first_tokens(study):
    """A request that arrives during a step waits for the next but one."""
    results = study("overlap", SWEEP | {"latency.host_s": [0]}, "workload.requests_per_client=4")
    ttft = {
        off: results.mean("mean_ttft_ms", disable_overlap_schedule=off) for off in (True, False)
    }
    assert ttft[False] > 1.05 * ttft[True]

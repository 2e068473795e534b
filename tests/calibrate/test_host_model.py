"""Host times are fitted to real runs if there are any, else to the host work of profiled steps."""

import numpy as np
import pytest

from calibrate.dataset import load_dataset
from calibrate.fit import fit_profile
from sim.core.batch import ForwardMode
from sim.latency.features import StepFeatures
from sim.latency.profile.model import ProfileLatency


@pytest.fixture
def decode_run(step_line):
    """Decode steps of a run whose host time is constant + 500 ns a row, with a long tail."""

    def make(constant_ns, *, seed=0):
        rng = np.random.default_rng(seed)
        for number in range(400):
            rows = 1 + number % 40
            context = rows * int(rng.integers(16, 4_000))
            host_ns = int((constant_ns + 500 * rows) * (0.9 + rng.exponential(0.1)))
            forward_ns = 1_000_000 + 3_000 * rows + 8 * context
            yield step_line(
                number, "decode", [], rows, context, forward_ns=forward_ns, host_ns=host_ns
            )

    return make


def host_ns_of(profile, rows, *, overlaps):
    step = StepFeatures(ForwardMode.DECODE, 0, 0, 0, rows, 500 * rows, 500 * rows)
    return ProfileLatency(profile, overlaps=overlaps).step_ns(step).host_ns


def scheduler(*, overlaps):
    return {"scheduler": {"disable_overlap_schedule": not overlaps}}


def test_host_normal_and_overlap_have_their_own_times(decode_run, write_log):
    """Each log says how it was scheduled; the fit meets the mean over a run, not the mode."""
    logs = [
        write_log(decode_run(90_000), "n.jsonl", **scheduler(overlaps=False)),
        write_log(decode_run(40_000, seed=1), "o.jsonl", **scheduler(overlaps=True)),
    ]
    profile = fit_profile(load_dataset(logs), name="both")
    assert [host.scheduling for host in profile.host] == ["normal", "overlap"]
    assert host_ns_of(profile, 20, overlaps=False) == pytest.approx(100_000, rel=0.03)
    assert host_ns_of(profile, 20, overlaps=True) == pytest.approx(50_000, rel=0.03)
    for host in profile.host:
        assert abs(host.modes["decode"].errors.total_pct) < 2


def test_host_of_a_profile_alone_is_put_together_and_says_so(linear, write_log):
    """It is the sum of plan, launch and read-back; what overlap would hide of it is not known."""
    profile = fit_profile(load_dataset([write_log(linear().decodes())]), name="gpu")
    assert [host.scheduling for host in profile.host] == ["not measured"]
    assert host_ns_of(profile, 8, overlaps=True) == pytest.approx(70_000, rel=0.001)


def test_host_few_compositions_get_a_constant(decode_run, write_log, linear):
    """Three steps of a run beside points of a profile: the fit is their mean, without terms."""
    run = list(decode_run(50_000))[:3]
    logs = [
        write_log(linear().decodes(), "p.jsonl"),
        write_log(run, "r.jsonl", **scheduler(overlaps=True)),
    ]
    profile = fit_profile(load_dataset(logs), name="few")
    (host,) = [host for host in profile.host if host.scheduling == "overlap"]
    assert [term.term for term in host.modes["decode"].terms] == ["constant"]
    mean_ns = np.mean([line["host_ns"] for line in run])
    assert host_ns_of(profile, 8, overlaps=True) == pytest.approx(mean_ns, rel=0.01)

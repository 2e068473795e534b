"""The times of a run's steps, taken from its log as the simulator counts them."""

import pytest

from calibrate.dataset import load_dataset
from calibrate.fit import fit_profile, fit_remarks
from calibrate.step_times import MeasuredTime, measured_times
from sim.core.errors import InputError
from sim.latency.profile.model import ProfileLatency


def line(decided, start, end, known, host, launch, graph=0):
    names = ("t_decided_ns", "t_start_ns", "t_end_ns", "t_known_ns", "host_ns", "launch_ns")
    times = (decided, start, end, known, host, launch)
    return {**dict(zip(names, times, strict=True)), "padded_rows": graph}


# Two eager steps and two graphs, in us:
# step 0: launch 10 to 50, device 10 to 48. Decided when nothing was in flight.
# step 1: decided at 52, launch 60 to 100, device 60 to 150: it needs more than its launch.
# step 2: a graph, decided at 102, launch 110 to 113, device 150 to 190.
# step 3: a graph, decided at 153, launch 160 to 163, device 190 to 230.
RUN = [
    line(2, 10, 48, 101, 8, 40),
    line(52, 60, 150, 152, 50, 40),
    line(102, 150, 190, 192, 50, 3, graph=8),
    line(153, 190, 230, 232, 10, 3, graph=8),
]


def test_step_times_of_overlap_have_the_launch_apart():
    """Host time begins when the step before is launched and the one before that has ended."""
    assert measured_times(RUN, overlaps=True) == [
        MeasuredTime(device_ns=38, host_ns=8, launch_ns=40, ahead_ns=0, is_launch_bound=True),
        MeasuredTime(device_ns=90, host_ns=10, launch_ns=40, ahead_ns=0, is_launch_bound=False),
        MeasuredTime(device_ns=40, host_ns=13, launch_ns=0, ahead_ns=37, is_launch_bound=False),
        MeasuredTime(device_ns=40, host_ns=13, launch_ns=0, ahead_ns=27, is_launch_bound=False),
    ]


def test_step_times_of_overlap_give_the_run_back():
    """The recursion of docs/explanation/profile.md arrives at the ends of the log.

    All but the first: the device ended that step 2 us before its launch.
    """
    free_ns, end_ns, ends_ns = 2, 0, []
    for time in measured_times(RUN, overlaps=True):
        begin_ns = free_ns + time.host_ns
        free_ns = max(begin_ns + time.launch_ns, end_ns)
        end_ns = max(max(begin_ns, end_ns) + time.device_ns, begin_ns + time.launch_ns)
        ends_ns.append(end_ns)
    assert ends_ns == [50, 150, 190, 230]


def test_step_times_of_normal_scheduling_are_the_logs():
    """Device and host time share the whole time; a launch is at most the device time."""
    assert measured_times(RUN[:2], overlaps=False) == [
        MeasuredTime(device_ns=38, host_ns=8, launch_ns=38, ahead_ns=0, is_launch_bound=True),
        MeasuredTime(device_ns=90, host_ns=50, launch_ns=40, ahead_ns=0, is_launch_bound=False),
    ]


def test_step_times_of_a_graph_on_an_idle_device_are_no_measure_of_it():
    """Its launch ends at 263, and the device has run it meanwhile: what it needs is not known."""
    after = line(235, 240, 262, 264, 8, 23, graph=8)
    assert measured_times([*RUN, after], overlaps=True)[-1] == MeasuredTime(
        device_ns=1, host_ns=31, launch_ns=0, ahead_ns=0, is_launch_bound=True
    )


def launched(device, *, launch_ns, hidden):
    """Extend points of a device, as two meters measure them behind a launch of `launch_ns`."""
    for point in device.extends():
        forward_ns = point["forward_ns"] if hidden else max(point["forward_ns"], launch_ns - 9)
        yield point | {"forward_ns": forward_ns, "launch_ns": launch_ns}


@pytest.mark.parametrize("hidden", [True, False])
def test_fit_finds_the_device_behind_launches(linear, write_log, hidden):
    """Points that waited for their launch are left out, and the launch is fitted."""
    device = linear(noise=0.0)
    lines = list(launched(device, launch_ns=2_000_000, hidden=hidden))
    dataset = load_dataset([write_log(lines, **({"graph_sizes": []} if hidden else {}))])
    profile = fit_profile(dataset, name="launched")
    model = ProfileLatency(profile)
    step = dataset.samples[0][0].step
    true_ns = next(device.extends())["forward_ns"]
    assert model.launch_ns(step) == pytest.approx(2_000_000, rel=1e-3)
    assert model.step_ns(step).device_ns == pytest.approx(true_ns, rel=0.05)
    left_out = ["extend: 60 of 84 steps and points waited for their launch: left out of the"]
    remarks = fit_remarks(dataset, profile)
    assert [text[: len(left_out[0])] for text in remarks] == ([] if hidden else left_out)


def test_fit_takes_the_captured_sizes_from_the_log(linear, write_log):
    """All of them, those that ran or not; a log that lacks them is told of."""
    lines = list(linear().decodes())
    known = load_dataset([write_log(lines, graph_sizes=[1, 2, 256, 320])])
    assert 320 in known.graph_sizes
    assert fit_remarks(known, fit_profile(known, name="known")) == []
    old = load_dataset([write_log(lines)])
    (remark,) = fit_remarks(old, fit_profile(old, name="old"))
    assert remark.startswith("no log says for which rows graphs were captured: taken are those")
    with pytest.raises(InputError, match=r"a\.jsonl: meta\.graph_sizes: must be a list of numbers"):
        load_dataset([write_log(lines, graph_sizes=["8"])])

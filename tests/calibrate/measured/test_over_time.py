"""Running and waiting requests over time: those read from a file, and those of a simulation."""

from pathlib import Path

import numpy as np
import pytest

from calibrate.measured.over_time import Samples, compare_over_time, logged_sizes, read_samples
from sim.core.errors import InputError
from sim.des.deployment import Deployment
from sim.des.run import RunOptions, simulate
from sim.scenario.build import build


@pytest.fixture
def write():
    """Writes lines as a file; returns its path."""

    def to_disk(*lines):
        path = Path("timeseries.csv")
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    return to_disk


@pytest.fixture(scope="module")
def run(load):
    """Simulates the scenario."""

    def make(*options, fast_forward=True):
        built = build(load(*options))
        options = RunOptions(fast_forward=fast_forward)
        return simulate(
            built.workload, Deployment.of_one_kind(built.scheduler, built.latencies), options
        )

    return make


def test_samples_are_read_from_three_of_the_columns(write):
    """Other columns are ignored."""
    samples = read_samples(write("t,gen,running,waiting,kv", "1.0,9,3,0,0", "2.5,9,4,7,0"))
    assert samples.t_s.tolist() == [1, 2.5]
    assert samples.running.tolist() == [3, 4]
    assert samples.waiting.tolist() == [0, 7]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (("t,running", "1,2"), ":1: waiting: there is no such column"),
        (("t,running,waiting",), ": has no rows"),
        (
            ("t,running,waiting", "1,2,3", "2,many,3"),
            ":3: running: must be a number, 0 or more, got",
        ),
        (
            ("t,running,waiting", "1,2,nan"),
            ":2: waiting: must be a number, 0 or more, got 'nan'",
        ),
        (("t,running,waiting", "1,2"), ":2: has 2 fields, the header 3"),
        (("t,running,waiting", "1,2,3", "1,2,3"), ": t: does not rise after 1"),
        (("",), ": has no rows"),
        (("t,running,waiting", "1e10,2,3"), ": t: must be at most 1e+09 seconds"),
    ],
)
def test_samples_that_are_none_are_refused(write, lines, reason):
    """One line that names the file, the line and the column."""
    with pytest.raises(InputError) as error:
        read_samples(write(*lines))
    assert str(error.value).startswith("timeseries.csv" + reason)


def test_samples_of_no_text_file_are_refused():
    """The file is missing, or no text."""
    with pytest.raises(InputError, match=r"^none.csv: cannot be read: No such file"):
        read_samples(Path("none.csv"))
    Path("bytes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"^bytes.csv:1: byte 1 is not UTF-8"):
        read_samples(Path("bytes.csv"))


def test_sizes_are_what_the_last_finished_step_left(run):
    """Counted from requests: those started and not over, and those that wait."""
    log = run("latency.host_s=0.001", fast_forward=False)
    requests, steps = log.requests, log.steps
    at_ns = np.arange(1, int(steps.t_end_ns[-1]), 33_333_333)
    running, waiting = logged_sizes(log, at_ns)
    assert waiting.max() > 3
    for t, found, queue in zip(at_ns.tolist(), running, waiting, strict=True):
        row = int(np.searchsorted(steps.t_end_ns, t, side="right")) - 1
        if row < 0:
            assert found == queue == 0
            continue
        end_ns, decided_ns = steps.t_end_ns[row], steps.t_start_ns[row] - 1_000_000
        started = requests.scheduled_ns < end_ns
        assert found == (started & (requests.finish_ns > end_ns)).sum()
        assert queue == ((requests.arrival_ns <= decided_ns) & ~started).sum()


def test_sizes_do_not_depend_on_how_steps_were_passed(run):
    """Steps that are logged together give the same sizes."""
    at_ns = np.arange(1, 6_000) * 1_000_003
    sizes = [logged_sizes(run(fast_forward=quick), at_ns) for quick in (True, False)]
    for quick, slow in zip(*sizes, strict=True):
        assert slow.max() > 3
        # Within a row of the log the ends of steps are known only approximately.
        assert (quick != slow).mean() < 0.002


def test_sizes_of_several_servers_add_up(run):
    """After the last request all sizes are 0."""
    log = run("replicas=3", "latency.step_s=0.02")
    end_ns = int(log.steps.t_end_ns.max())
    running, waiting = logged_sizes(log, np.array([-1, end_ns // 2, end_ns]))
    assert running.tolist()[::2] == waiting.tolist()[::2] == [0, 0]
    single = max(log.steps.running[log.steps.replica == replica].max() for replica in range(3))
    assert single < running[1]


def test_comparison_shifts_the_clock_and_stops_at_the_end(run):
    """Samples of the simulation itself on a clock 2 s ahead do not differ from it."""
    log = run()
    end_ns = int(log.requests.finish_ns.max())
    t_s = np.arange(1.0, 60.0)
    own = logged_sizes(log, ((t_s - 2) * 1e9).astype(np.int64))
    samples = Samples(t_s, *own)
    result = compare_over_time(samples, log, shift_ns=2_000_000_000, end_ns=end_ns + 2_000_000_000)
    for name in ("running", "waiting"):
        assert result.errors[name].mean_difference == result.errors[name].max_difference == 0
        assert result.errors[name].mean_measured == result.errors[name].mean_simulated > 0
    assert result.num_left_out == 60 - 1 - len(result.measured.t_s) > 0
    assert result.measured.running[-1] == 0
    assert result.measured.t_s[-2] < end_ns / 1e9 + 2 <= result.measured.t_s[-1]
    more = Samples(t_s, own[0] + 3, own[1])
    errors = compare_over_time(more, log, shift_ns=2_000_000_000, end_ns=0).errors
    assert errors["running"].mean_difference == errors["running"].max_difference == 3
    assert errors["waiting"].mean_difference == 0

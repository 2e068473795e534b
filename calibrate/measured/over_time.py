"""Numbers of running and waiting requests over time, in a server's log and in a simulation."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sim.core.arrays import Float64, Int64
from sim.core.errors import InputError
from sim.core.units import NS_PER_S
from sim.metrics.latencies import finished_mask
from sim.runlog import NOT_YET_NS, RequestColumns, RunLog, StepColumns
from sim.tables.csv_table import CsvTable

SIZES = ("running", "waiting")
# As in measured runs (sim.runlog.run_log_file).
_MAX_S = 1e9


@dataclass(frozen=True, slots=True)
class Samples:
    """Requests running and waiting at some times; arrays of one length, `t_s` ascending."""

    t_s: Float64
    running: Float64
    waiting: Float64


@dataclass(frozen=True, slots=True)
class SizeErrors:
    """Errors of one number over time: the mean in each run, and absolute differences at samples."""

    mean_measured: float
    mean_simulated: float
    mean_difference: float
    max_difference: float


@dataclass(frozen=True, slots=True)
class OverTime:
    """Sizes of both runs at the times of the measured samples.

    Attributes:
        measured, simulated: samples at the same times.
        errors: by name (`SIZES`).
        num_left_out: samples from the time after all requests had finished in both runs. The first
            of those samples is compared and does not count here.
    """

    measured: Samples
    simulated: Samples
    errors: dict[str, SizeErrors]
    num_left_out: int


def read_samples(path: Path) -> Samples:
    """Read a CSV with columns `t` (seconds since the run's start), `running` and `waiting`.

    Raises:
        InputError: the file cannot be read, a column is missing, times do not rise, or a value is
            not a number of at least 0.
    """
    table = CsvTable(path)
    columns = (np.array(table.numbers(name), dtype=np.float64) for name in ("t", *SIZES))
    samples = Samples(*columns)
    if samples.t_s.max() > _MAX_S:
        raise InputError(f"{path}: t: must be at most {_MAX_S:.0e} seconds")
    late = np.flatnonzero(np.diff(samples.t_s) <= 0)
    if len(late):
        raise InputError(f"{path}: t: does not rise after {samples.t_s[late[0]]:g}")
    return samples


def compare_over_time(measured: Samples, log: RunLog, *, shift_ns: int, end_ns: int) -> OverTime:
    """Compare a simulation with the samples of a measured run.

    Args:
        measured: the samples.
        log: the simulation.
        shift_ns: difference of the clocks: measured - simulated time.
        end_ns: time of the last measured finish.
    """
    simulated_end_ns = int(log.requests.finish_ns.max(initial=NOT_YET_NS)) + shift_ns
    end_s = max(end_ns, simulated_end_ns) / NS_PER_S
    # The first sample after the end is used, too: it shows that no request is left.
    num_kept = min(int(np.searchsorted(measured.t_s, end_s)) + 1, len(measured.t_s))
    columns = (measured.t_s, measured.running, measured.waiting)
    kept = Samples(*(column[:num_kept] for column in columns))
    at_ns = np.rint(kept.t_s * NS_PER_S).astype(np.int64) - shift_ns
    running, waiting = logged_sizes(log, at_ns)
    simulated = Samples(kept.t_s, running, waiting)
    errors = {name: _errors(getattr(kept, name), getattr(simulated, name)) for name in SIZES}
    return OverTime(kept, simulated, errors, len(measured.t_s) - num_kept)


def logged_sizes(log: RunLog, at_ns: Int64) -> tuple[Float64, Float64]:
    """Requests running and waiting after the last finished step, which is what servers log.

    A request that finished in that step does not count any more, and one that arrived since does
    not count yet. Of steps that are logged together only the last end is known; they count as
    equally long.
    """
    running, waiting = np.zeros(len(at_ns)), np.zeros(len(at_ns))
    for replica in np.unique(log.steps.replica):
        t_ns, sizes = _sizes_of_replica(log.steps, log.requests, int(replica))
        # Before the end of the first step nothing is logged.
        row = np.searchsorted(t_ns, at_ns, side="right")
        running += np.concatenate(([0], sizes[0]))[row]
        waiting += np.concatenate(([0], sizes[1]))[row]
    return running, waiting


def _sizes_of_replica(
    steps: StepColumns, requests: RequestColumns, replica: int
) -> tuple[Int64, tuple[Int64, Int64]]:
    """Times, and the running and waiting requests of one replica from each time on.

    A row of the log is one step, or several decode steps with the same rows. It gives two times:
    the ends of its first and of its last step. Requests that finish with a step, or while the
    replica idles after it, are no longer running from the end of the last step on.
    """
    mine = steps.replica == replica
    start_ns, end_ns = steps.t_start_ns[mine], steps.t_end_ns[mine]
    running, queue = steps.running[mine], steps.queue[mine]
    served = (requests.replica == replica) & finished_mask(requests)
    finish_ns = np.sort(requests.finish_ns[served])
    next_ns = np.append(start_ns[1:], np.iinfo(np.int64).max)
    num_finished = np.searchsorted(finish_ns, np.maximum(next_ns, end_ns), side="right")
    num_finished -= np.searchsorted(finish_ns, start_ns, side="right")
    first_end_ns = start_ns + (end_ns - start_ns) // steps.num_steps[mine]
    t_ns = np.column_stack((first_end_ns, end_ns)).ravel()
    left = np.maximum(running - num_finished, 0)
    after_first = np.where(steps.num_steps[mine] == 1, left, running)
    sizes = np.column_stack((after_first, left)).ravel()
    return np.maximum.accumulate(t_ns), (sizes, np.repeat(queue, 2))


def _errors(measured: Float64, simulated: Float64) -> SizeErrors:
    error = np.abs(simulated - measured)
    return SizeErrors(
        float(measured.mean()), float(simulated.mean()), float(error.mean()), float(error.max())
    )

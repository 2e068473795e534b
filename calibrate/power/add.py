"""Adds the power of a server to the profile of its logs, and says how good it is."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from calibrate.power.fit import LoadError, fit_power
from calibrate.power.readings import Readings, read_readings
from calibrate.power.windows import (
    Steps,
    Windows,
    offset_of_run_log,
    steps_of_run_log,
    steps_of_server_log,
    windows_of,
)
from sim.commands.output import print_line, print_table
from sim.core.errors import InputError
from sim.latency.profile.format import LatencyProfile, Power
from sim.metrics.power import AMOUNTS
from sim.server_log.read import logs_of
from sim.tables.table import Table, columns_of, number

# From the year 0 to the present.
_MOST_OFFSET_S = 1e11


class PowerReadings(NamedTuple):
    """The readings of each file, and the seconds added to their times; None: found, or 0."""

    files: Sequence[Readings]
    offset_s: float | None

    @classmethod
    def of(cls, paths: Sequence[Path], offset_s: float | None) -> "PowerReadings":
        """Read the files. Raises InputError for a bad file, or an offset that is none."""
        if offset_s is not None and not abs(offset_s) <= _MOST_OFFSET_S:
            raise InputError(f"--power-offset {offset_s}: must be a number of seconds")
        return cls([read_readings(path) for path in paths], offset_s)


class Added(NamedTuple):
    """A profile with power, and what to print about it."""

    profile: LatencyProfile
    tables: Sequence[Table]
    lines: Sequence[str]


def with_power_of_server_logs(
    profile: LatencyProfile, logs: Sequence[Path], read: PowerReadings | None
) -> Added:
    """The profile with the power of the server that wrote these logs; as it is without readings.

    Logs and readings have times of day: the readings of all files are taken together.

    Raises:
        InputError: logs cannot be read, or are of another time than the readings.
    """
    if read is None:
        return Added(profile, (), ())
    readings = [reading for each in read.files for reading in each.readings]
    steps = [steps_of_server_log(files, profile) for files in logs_of(logs)]
    windows = [windows_of(each, readings, read.offset_s or 0.0) for each in steps]
    return _added(profile, steps, windows, read.files, [])


def with_power_of_run_logs(
    profile: LatencyProfile, logs: Sequence[Path], read: PowerReadings | None
) -> Added:
    """The same of run logs, each with a file of its own: their clocks begin with the run.

    Raises:
        InputError: as above, or there is not one file for each log that has steps.
    """
    if read is None:
        return Added(profile, (), ())
    steps = [each for each in map(steps_of_run_log, logs) if each is not None]
    if len(steps) != len(read.files):
        reason = f"{len(read.files)} of them for {len(steps)} run logs with steps"
        raise InputError(f"--power: one file for each run log, in their order, got {reason}")
    windows, lines = [], []
    for each, found in zip(steps, read.files, strict=True):
        offset_s = read.offset_s
        if offset_s is None:
            offset_s, correlation = offset_of_run_log(each, found.readings)
            lines.append(
                f"{found.path.name}: its clock and that of {each.path.name} were matched by what"
                f" steps draw: correlation {correlation:.3f}, --power-offset {offset_s:.1f}"
            )
        windows.append(windows_of(each, found.readings, offset_s))
    return _added(profile, steps, windows, read.files, lines)


def print_power(added: Added) -> None:
    """Print how good the fit is; nothing if there were no readings."""
    for table in added.tables:
        print_table(table)
    for line in added.lines:
        print_line(line)


def _added(
    profile: LatencyProfile,
    steps: Sequence[Steps],
    windows: Sequence[Windows],
    files: Sequence[Readings],
    lines: Sequence[str],
) -> Added:
    found = fit_power(windows, steps, [each.path.name for each in files])
    notes = [note for each in files if (note := each.note()) is not None]
    if len(windows) == 1:
        notes.append("One log alone: other loads may be far off. Give the lightest and heaviest.")
    return Added(
        profile.model_copy(update={"power": found.power}),
        [power_table(found.power), _load_table(found.loads)],
        [*lines, *notes, *power_lines(found.power)],
    )


def _load_table(loads: Sequence[LoadError]) -> Table:
    rows = [
        (
            each.log,
            each.num_windows,
            *map(number, (each.watts, each.fitted_w, _off_pct(each, each.fitted_w))),
            number(None if each.left_out_w is None else _off_pct(each, each.left_out_w)),
        )
        for each in loads
    ]
    headings = ("windows", "watts", "fitted", "error %", "if left out %")
    return Table(columns_of(("power",), headings), rows)


def _off_pct(load: LoadError, watts: float) -> float:
    return 100 * (watts / load.watts - 1)


def power_table(power: Power) -> Table:
    """What a server draws; joules a second are watts."""
    rows = [("idle", number(power.idle_w), "s")]
    for name, joules in power.joules.items():
        rows.append((AMOUNTS[name].label, number(joules), AMOUNTS[name].unit))
    return Table(columns_of(("energy of",), ("J",), ("per",)), rows)


def power_lines(power: Power) -> Iterator[str]:
    """What a profile's power rests on."""
    gpus = "1 GPU" if power.gpus == 1 else f"{power.gpus} GPUs"
    rows = f"{power.decode_rows.low:.0f} to {power.decode_rows.high:.0f} decode rows"
    clocks = "clocks not in the readings"
    if power.clock_mhz is not None:
        clocks = f"SM clocks of {power.clock_mhz.low:,.0f} to {power.clock_mhz.high:,.0f} MHz"
    yield (
        f"power of {gpus}, fitted to {power.windows:,} windows of {power.window_s:g} s, {rows},"
        f" {clocks}; held-out windows are {power.errors.mape_pct:.1f} % off, their sum"
        f" {power.errors.total_pct:+.1f} %"
    )
    if not power.idle_measured:
        yield "The server was never seen idle: the lowest reading is taken for that."

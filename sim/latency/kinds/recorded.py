"""Step times replayed from the decision log of an earlier run, in order."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sim.core.arrays import Int64
from sim.core.errors import InputError, describe
from sim.core.packed import numbered_lines
from sim.core.units import NS_PER_S, seconds_to_ns
from sim.latency.features import StepFeatures
from sim.latency.model import StepTime

_MAX_NS = 2**62
_MAX_S = _MAX_NS // NS_PER_S


class RecordedLatency:
    """Step i takes as long as step i of the log, whatever it computes."""

    def __init__(
        self, path: Path, device_ns: Int64, host_ns: Int64, launch_ns: Int64 | None = None
    ) -> None:
        """Take times of shape [num_steps], read from `path`, which error messages name."""
        if launch_ns is None:
            launch_ns = np.zeros_like(host_ns)
        self._path = path
        self._device_ns = device_ns
        self._host_ns = host_ns
        self._launch_ns = launch_ns
        # Numbers of the steps whose launch time is not that of the step before.
        self._changes = np.flatnonzero(np.diff(launch_ns)) + 1
        self._next = 0

    @classmethod
    def from_file(cls, path: Path, replica: int = 0) -> "RecordedLatency":
        """Read one server's steps from a decision log, plain or gzipped."""
        return cls(path, *read_step_times(path, replica))

    def step_ns(self, step: StepFeatures) -> StepTime:
        self._check_left()
        return StepTime(int(self._device_ns[self._next]), int(self._host_ns[self._next]))

    def decode_run_ns(self, first: StepFeatures, num_steps: int) -> tuple[Int64, Int64]:
        self._check_left()
        coming = slice(self._next, min(self._next + num_steps, self._next_change()))
        return self._device_ns[coming].copy(), self._host_ns[coming].copy()

    def launch_ns(self, step: StepFeatures) -> int:
        self._check_left()
        return int(self._launch_ns[self._next])

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        self._next += num_steps

    def _next_change(self) -> int:
        """The next step that has another launch time; the number of steps if there is none."""
        place = int(self._changes.searchsorted(self._next, side="right"))
        return int(self._changes[place]) if place < len(self._changes) else len(self._launch_ns)

    def _check_left(self) -> None:
        if self._next >= len(self._device_ns):
            num_steps = len(self._device_ns)
            raise InputError(
                f"{self._path}: the run needs more than its {num_steps} recorded steps"
            )


class _StepTimes(NamedTuple):
    device_ns: int
    host_ns: int
    launch_ns: int


def read_step_times(path: Path, replica: int = 0) -> tuple[Int64, Int64, Int64]:
    """Device, host and launch ns of a server's steps, in the file's order.

    If the log has the steps of one server only, with or without `replica`, any replica uses them.

    The device time of a `"kind": "step"` line is the first of these that it has: `device_ns`;
    `t_end_ns - t_start_ns`; `t_end - t_start` in seconds. The host time is `host_ns`; it is 0 if
    that key is missing or the times are in seconds. Seconds are rounded to ns before they are
    subtracted, so that consecutive steps add up to the log's own times. The launch time is the
    `launch_ns` of a simulated step. In a log of a real run it is 0, because there `host_ns` has the
    launch of the step before.

    Returns three int64 arrays of shape [num_steps], num_steps >= 1.
    """
    times_of: dict[object, list[_StepTimes]] = {}
    for line_number, record in numbered_lines(path):
        if record.get("kind") == "step":
            where = f"{path}:{line_number}"
            server = tuple(_number(record, key, where) for key in ("replica", "rank"))
            times_of.setdefault(server, []).append(_step_time(record, where))
    if not times_of:
        raise InputError(f'{path}: no line with "kind": "step"')
    times = next(iter(times_of.values())) if len(times_of) == 1 else times_of.get((replica, None))
    if times is None:
        raise InputError(f"{path}: has steps of {len(times_of)} servers, none of server {replica}")
    columns = np.array(times, dtype=np.int64)
    return columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].copy()


def _number(record: Mapping[str, Any], key: str, where: str) -> int | None:
    """The number of a replica or of a rank; None if the line has none."""
    value = record.get(key)
    if value is None or (type(value) is int and value >= 0):
        return value
    raise InputError(f"{where}: {key}: must be a number from 0 on, got {describe(value)}")


def _step_time(record: Mapping[str, Any], where: str) -> _StepTimes:
    if "device_ns" in record:
        device_ns = _whole_ns(record, "device_ns", where)
        host_ns = _whole_ns(record, "host_ns", where) if "host_ns" in record else 0
    elif "t_start_ns" in record:
        device_ns = _whole_ns(record, "t_end_ns", where) - _whole_ns(record, "t_start_ns", where)
        host_ns = _whole_ns(record, "host_ns", where) if "host_ns" in record else 0
    else:
        device_ns = _rounded_ns(record, "t_end", where) - _rounded_ns(record, "t_start", where)
        host_ns = 0
    launch_ns = 0
    if "launch_ns" in record and "t_known_ns" not in record:
        launch_ns = _whole_ns(record, "launch_ns", where)
    if device_ns < 1 or host_ns < 0 or launch_ns < 0:
        took = f"device {device_ns} ns, host {host_ns} ns, launch {launch_ns} ns"
        raise InputError(f"{where}: a step must take at least 1 ns of device time, got {took}")
    return _StepTimes(device_ns, host_ns, launch_ns)


def _whole_ns(record: Mapping[str, Any], key: str, where: str) -> int:
    value = record.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _MAX_NS:
        raise InputError(f"{where}: {key}: must be whole nanoseconds, got {describe(value)}")
    return value


def _rounded_ns(record: Mapping[str, Any], key: str, where: str) -> int:
    value = record.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= _MAX_S:
        raise InputError(f"{where}: {key}: must be a number of seconds, got {describe(value)}")
    return seconds_to_ns(value)

"""Reads the step times of a decision log."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sim.core.arrays import Int64
from sim.core.errors import InputError
from sim.core.units import NS_PER_S, seconds_to_ns
from sim.latency.model import StepTime
from sim.runlog.json_lines import numbered_lines

_MAX_NS = 2**62
_MAX_S = _MAX_NS // NS_PER_S


def read_step_times(path: Path, replica: int = 0) -> tuple[Int64, Int64]:
    """Device and host ns of a server's steps, in the file's order.

    If the log is of one server, or names none, its steps serve for any replica.

    The time of a `"kind": "step"` line is the first of these that it has: `device_ns`; `t_end_ns -
    t_start_ns`; `t_end - t_start` in seconds. The first two go with `host_ns`, 0 if it is missing.
    Seconds are rounded to ns before they are subtracted, so that consecutive steps add up to the
    log's own times.

    Returns:
        Two int64 arrays of shape [num_steps], num_steps >= 1.

    Raises:
        InputError: the file cannot be read, a line is not JSON or has no such times, a step takes
            no time or less, or there is no step (of this server, if the log has several).
    """
    times_of: dict[object, list[StepTime]] = {}
    for line_number, record in numbered_lines(path):
        if record.get("kind") == "step":
            time = _step_time(record, f"{path}:{line_number}")
            times_of.setdefault(record.get("replica"), []).append(time)
    if not times_of:
        raise InputError(f'{path}: no line with "kind": "step"')
    times = next(iter(times_of.values())) if len(times_of) == 1 else times_of.get(replica)
    if times is None:
        raise InputError(f"{path}: has steps of {len(times_of)} servers, none of server {replica}")
    columns = np.array(times, dtype=np.int64)
    return columns[:, 0].copy(), columns[:, 1].copy()


def _step_time(record: Mapping[str, Any], where: str) -> StepTime:
    if "device_ns" in record:
        device_ns = _whole_ns(record, "device_ns", where)
        host_ns = _whole_ns(record, "host_ns", where) if "host_ns" in record else 0
    elif "t_start_ns" in record:
        device_ns = _whole_ns(record, "t_end_ns", where) - _whole_ns(record, "t_start_ns", where)
        host_ns = _whole_ns(record, "host_ns", where) if "host_ns" in record else 0
    else:
        device_ns = _rounded_ns(record, "t_end", where) - _rounded_ns(record, "t_start", where)
        host_ns = 0
    if device_ns < 1 or host_ns < 0:
        took = f"device {device_ns} ns, host {host_ns} ns"
        raise InputError(f"{where}: a step must take at least 1 ns of device time, got {took}")
    return StepTime(device_ns, host_ns)


def _whole_ns(record: Mapping[str, Any], key: str, where: str) -> int:
    value = record.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _MAX_NS:
        raise InputError(f"{where}: {key}: must be whole nanoseconds, got {value!r}")
    return value


def _rounded_ns(record: Mapping[str, Any], key: str, where: str) -> int:
    value = record.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= _MAX_S:
        raise InputError(f"{where}: {key}: must be a number of seconds, got {value!r}")
    return seconds_to_ns(value)

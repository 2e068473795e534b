"""The times of a real run's steps, as a simulator counts them (docs/explanation/profile.md).

A run log divides time among steps so that each launch is in the host time of the next step
(docs/reference/run-log.md). A simulator must know the launch by itself. `measured_times` takes it
out: if the simulator is given these times, step by step, it arrives at the times of the run.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Line = Mapping[str, Any]

# If a launch takes nearly as long as the step, the device probably waited for kernels at times.
_BOUND_SHARE = 0.9


class MeasuredTime(NamedTuple):
    """The times of one step.

    Attributes:
        device_ns: from the time when the launch had begun and the device was free, to the step's
            end; of a graph, from the end of its launch.
        host_ns: the step's host time, with the launch of a graph.
        launch_ns: how long the host launched an eager step; 0 for a graph.
        ahead_ns: how long the launch had gone on when the device became free for the step.
        is_launch_bound: the device may have waited for the launch, so that `device_ns` is not what
            the device needs.
    """

    device_ns: int
    host_ns: int
    launch_ns: int
    ahead_ns: int
    is_launch_bound: bool


def is_launch_bound(device_ns: float, launch_ns: float) -> bool:
    """Whether an eager step may have waited for its launch, which took `launch_ns` of its time."""
    return launch_ns > _BOUND_SHARE * device_ns


def measured_times(steps: Sequence[Line], *, overlaps: bool) -> list[MeasuredTime]:
    """The times of all steps of a run log, in the log's order."""
    return _overlapped(steps) if overlaps else [_of_normal(step) for step in steps]


def _of_normal(step: Line) -> MeasuredTime:
    """Normal scheduling: the log's own times; `host_ns` has all that is not the device's."""
    device_ns = max(step["t_end_ns"] - step["t_start_ns"], 1)
    launch_ns = 0 if step.get("padded_rows") else round(step.get("launch_ns", 0))
    is_bound = is_launch_bound(device_ns, launch_ns)
    # A launch ends after the device's work that it enqueues, and the log's host time has the rest.
    return MeasuredTime(device_ns, step["host_ns"], min(launch_ns, device_ns), 0, is_bound)


def _overlapped(steps: Sequence[Line]) -> list[MeasuredTime]:
    """Overlap scheduling.

    The log's `host_ns` begins at the start of the step before. The simulator's begins when that
    step is launched and the one before it has ended.
    """
    times: list[MeasuredTime] = []
    known_ns = start_ns = launched_ns = end_ns = before_ns = 0
    for step in steps:
        launch_ns = round(step.get("launch_ns", 0))
        is_graph = bool(step.get("padded_rows"))
        host_ns, begin_ns = step["host_ns"], step["t_start_ns"]
        if times and known_ns > step["t_decided_ns"]:
            begin_ns = start_ns + host_ns
            host_ns = max(begin_ns - max(launched_ns, before_ns), 0)
        ready_ns = begin_ns + launch_ns if is_graph else begin_ns
        free_ns = max(ready_ns, end_ns)
        before_ns, end_ns = end_ns, step["t_end_ns"]
        known_ns, start_ns = step["t_known_ns"], step["t_start_ns"]
        launched_ns = begin_ns + launch_ns
        ahead_ns, device_ns = free_ns - ready_ns, max(end_ns - free_ns, 1)
        if is_graph:
            # An idle device begins with a graph at some time during the graph's launch.
            is_bound = launch_ns > 0 and ahead_ns == 0
            times.append(MeasuredTime(device_ns, host_ns + launch_ns, 0, ahead_ns, is_bound))
        else:
            is_bound = is_launch_bound(device_ns, launch_ns - ahead_ns)
            times.append(MeasuredTime(device_ns, host_ns, launch_ns, ahead_ns, is_bound))
    return times

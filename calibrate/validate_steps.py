"""Predicted against measured times of the steps of real runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from calibrate.errors_by_mode import errors_of
from calibrate.host_model import LEAST_HOST_NS
from calibrate.rebuild import RebuiltRun
from calibrate.step_times import measured_times
from sim.core.arrays import Float64
from sim.latency.features import line_features
from sim.latency.model import RangeReport
from sim.latency.profile.format import Errors, LatencyProfile, ModeName
from sim.latency.profile.model import ProfileLatency


@dataclass(frozen=True, slots=True)
class StepErrors:
    """Times and errors of the steps of one mode.

    Attributes:
        measured_ns, predicted_ns: device times; shape [number of steps whose device time is
            known]. It is not known of a graph that an idle device began during the graph's launch.
            Of an eager step that waits for its launch, they are the time until the launch ends.
        device, host: errors of device times and of host times.
    """

    measured_ns: Float64
    predicted_ns: Float64
    device: Errors
    host: Errors


def step_errors(
    runs: Sequence[RebuiltRun], profile: LatencyProfile
) -> tuple[dict[str, StepErrors], RangeReport]:
    """Errors by mode over all steps, and how many steps lay outside the profile's range.

    Raises:
        InputError: the profile has no times for a mode that occurs.
    """
    times: dict[str, list[tuple[float, ...]]] = {}
    models = [ProfileLatency(profile, overlaps=run.overlaps) for run in runs]
    for run, model in zip(runs, models, strict=True):
        measured = measured_times(run.recorded.steps, overlaps=run.overlaps)
        for line, time in zip(run.recorded.steps, measured, strict=True):
            step = line_features(line)
            device_ns, host_ns = model.step_ns(step)
            device_ns = max(device_ns, model.launch_ns(step) - time.ahead_ns)
            model.consume(step, 1)
            is_known = time.launch_ns > 0 or not time.is_launch_bound
            times.setdefault(line["mode"], []).append(
                (time.device_ns, time.host_ns, device_ns, host_ns, is_known)
            )
    by_mode = {mode: _errors(times[mode]) for mode in get_args(ModeName) if mode in times}
    return by_mode, RangeReport.merged(model.left_range() for model in models)


def _errors(times: list[tuple[float, ...]]) -> StepErrors:
    device_ns, host_ns, predicted_device_ns, predicted_host_ns, is_known = np.array(
        times, dtype=np.float64
    ).T
    known = is_known > 0 if is_known.any() else np.ones(len(times), dtype=np.bool_)
    device_ns, predicted_device_ns = device_ns[known], predicted_device_ns[known]
    return StepErrors(
        measured_ns=device_ns,
        predicted_ns=predicted_device_ns,
        device=errors_of(device_ns, predicted_device_ns),
        host=errors_of(host_ns, predicted_host_ns, least_ns=LEAST_HOST_NS),
    )

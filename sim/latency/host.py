"""What a request and a step cost on the host, beyond the kernels of a step.

    client     | front end: one request after another |  scheduler's queue
               |  request_s, prompt_token_s           |
    request  --+--------------------------------------+--> scheduled

    host         | schedule, prepare: step_s, row_s |
    device   ----| kernels of step k | step_gap_s | kernels of step k + 1 ...

A step with prefill rows runs without a CUDA graph. The host then launches its kernels one by one,
so that it takes at least `layer_launch_s` for each layer.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated

import numpy as np
from pydantic import Field

from sim.core.arrays import Int64
from sim.core.errors import InputError
from sim.core.messages import unknown_name
from sim.core.units import seconds_to_ns
from sim.latency.features import StepFeatures
from sim.latency.model import LatencyModel, Ranged, StepTime, latency_source
from sim.latency.range_report import RangeReport
from sim.strict_model import StrictModel

_Seconds = Annotated[float, Field(ge=0, le=60)]


class HostSection(StrictModel):
    """What a server's host adds. Without a key: nothing."""

    front_end_s: _Seconds = 0.0
    """From a request's arrival until the scheduler can see it; requests do not wait for each other
    here. Unit: s."""
    request_s: _Seconds = 0.0
    """Time of the front end for each request, one request after another. Unit: s."""
    prompt_token_s: _Seconds = 0.0
    """The same for each token of the prompt. Unit: s a token."""
    step_s: _Seconds = 0.0
    """Host time of a step, which overlap scheduling hides behind the device. Unit: s."""
    row_s: _Seconds = 0.0
    """The same for each prefill or decode row. Unit: s a row."""
    step_gap_s: _Seconds = 0.0
    """Part of each step's time during which the device runs no kernels, whether or not scheduling
    overlaps. Unit: s."""
    row_gap_s: _Seconds = 0.0
    """The same for each row of the step. Unit: s a row."""
    layer_gap_s: _Seconds = 0.0
    """The same for each layer of the model. Unit: s a layer."""
    layer_launch_s: _Seconds = 0.0
    """Time to launch the kernels of a layer in a step with prefill rows. Unit: s a layer."""


@cache
def host_presets() -> Mapping[str, HostSection]:
    """Costs that were fitted to measured servers, by engine generation."""
    text = (files("sim.latency") / "host_presets.json").read_text(encoding="utf-8")
    return {name: HostSection(**values) for name, values in json.loads(text).items()}


def host_preset(name: str) -> HostSection:
    """The preset of that name. Raises InputError if there is none."""
    presets = host_presets()
    if name not in presets:
        raise InputError(unknown_name("host preset", name, presets), key=("host",))
    return presets[name]


class HostedLatency:
    """Another model's times with the host's."""

    def __init__(self, model: LatencyModel, host: HostSection, num_layers: int) -> None:
        self._model = model
        self._step_ns = seconds_to_ns(host.step_s)
        self._row_ns = seconds_to_ns(host.row_s)
        self._gap_ns = seconds_to_ns(host.step_gap_s + host.layer_gap_s * num_layers)
        self._row_gap_ns = seconds_to_ns(host.row_gap_s)
        self._launch_ns = seconds_to_ns(host.layer_launch_s * num_layers)

    @property
    def source(self) -> str | None:
        return latency_source(self._model)

    def step_ns(self, step: StepFeatures) -> StepTime:
        device_ns, host_ns = self._model.step_ns(step)
        if step.num_prefill_rows:
            device_ns = max(device_ns, self._launch_ns)
        rows = step.num_prefill_rows + step.num_decode_rows
        return StepTime(
            device_ns + self._gap_ns + self._row_gap_ns * rows,
            host_ns + self._step_ns + self._row_ns * rows,
        )

    def decode_run_ns(self, first: StepFeatures, num_steps: int) -> tuple[Int64, Int64]:
        device_ns, host_ns = self._model.decode_run_ns(first, num_steps)
        if first.num_prefill_rows:
            device_ns = np.maximum(device_ns, self._launch_ns)
        rows = first.num_prefill_rows + first.num_decode_rows
        return (
            device_ns + (self._gap_ns + self._row_gap_ns * rows),
            host_ns + (self._step_ns + self._row_ns * rows),
        )

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        self._model.consume(first, num_steps)

    def left_range(self) -> RangeReport:
        return self._model.left_range() if isinstance(self._model, Ranged) else RangeReport()

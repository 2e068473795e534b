"""What a request and a step cost on the host, beyond the kernels of a step.

    client     | front end: one request after another |  scheduler's queue
               |  request_s, prompt_token_s           |
    request  --+--------------------------------------+--> scheduled

    host         | schedule, prepare: step_s, row_s |
    device   ----| kernels of step k | step_gap_s | kernels of step k + 1 ...

A large step with prefill rows runs without CUDA graphs. The host then launches its kernels one by
one, so that the step takes at least `layer_launch_s` for each layer.

For tables of layers, `calibrate fit` writes a file of host times, a constant and a time for each
request of a step: JSON `{"format": "servetwin-host-times", "version": 1, "host_s": ..,
"host_per_request_s": .., "fit": {..}}`; `fit` says where the numbers come from.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from math import isfinite
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from sim.core.arrays import Int64
from sim.core.declared import MAX_COUNT
from sim.core.errors import InputError, unknown_name
from sim.core.files import atomic_path
from sim.core.packed import read_json_object
from sim.core.units import seconds_to_ns
from sim.latency.features import StepFeatures
from sim.latency.model import LatencyModel, StepTime
from sim.latency.wrappers import LatencyWrapper
from sim.validation import StrictModel

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
    prefill_token_gap_s: _Seconds = 0.0
    """Added to a step with prefill rows for each of its new tokens, over all ranks that step
    together: what kernels take beyond their measured times. Unit: s a token."""
    layer_launch_s: _Seconds = 0.0
    """Time to launch the kernels of a layer in a step that has prefill rows and runs without CUDA
    graphs. Unit: s a layer."""
    subquadratic_layer_gap_s: _Seconds = 0.0
    """Added to `layer_gap_s` for each layer with linear or sparse attention, which has more small
    kernels. Unit: s a layer."""
    subquadratic_layer_launch_s: _Seconds = 0.0
    """Added to `layer_launch_s` for each such layer. Unit: s a layer."""
    cold_start_s: _Seconds = 0.0
    """How much longer the first step with at least `cold_start_tokens` prefill tokens takes: the
    server compiles kernels for steps of that size when it meets the first one. Unit: s."""
    cold_start_tokens: Annotated[int, Field(ge=1, le=MAX_COUNT)] = 1
    """See `cold_start_s`. Unit: tokens."""


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


class HostedServer(NamedTuple):
    """What the host's costs depend on.

    Attributes:
        num_layers: layers of the model.
        num_subquadratic: those of them with linear or sparse attention.
        prefill_graph_tokens: new tokens of the largest step with prefill rows that runs in CUDA
            graphs; 0: none does.
    """

    num_layers: int
    num_subquadratic: int = 0
    prefill_graph_tokens: int = 0


class HostedLatency(LatencyWrapper):
    """Another model's times with the host's."""

    def __init__(self, model: LatencyModel, host: HostSection, server: HostedServer) -> None:
        super().__init__(model)
        self._step_ns = seconds_to_ns(host.step_s)
        self._row_ns = seconds_to_ns(host.row_s)
        gap_s = host.layer_gap_s * server.num_layers
        gap_s += host.subquadratic_layer_gap_s * server.num_subquadratic
        self._gap_ns = seconds_to_ns(host.step_gap_s + gap_s)
        self._row_gap_ns = seconds_to_ns(host.row_gap_s)
        self._token_gap_s = host.prefill_token_gap_s
        launch_s = host.layer_launch_s * server.num_layers
        launch_s += host.subquadratic_layer_launch_s * server.num_subquadratic
        self._launch_ns = seconds_to_ns(launch_s)
        self._prefill_graph_tokens = server.prefill_graph_tokens
        # 0 once the server has compiled its kernels.
        self._cold_start_ns = seconds_to_ns(host.cold_start_s)
        self._cold_start_tokens = host.cold_start_tokens

    def step_ns(self, step: StepFeatures) -> StepTime:
        device_ns, host_ns = self._model.step_ns(step)
        if self._is_launched_by_host(step):
            device_ns = max(device_ns, self._launch_ns)
        if self._is_cold_start(step):
            device_ns += self._cold_start_ns
        rows = step.num_prefill_rows + step.num_decode_rows
        return StepTime(
            device_ns + self._gap_ns + self._row_gap_ns * rows + self._tokens_ns(step),
            host_ns + self._step_ns + self._row_ns * rows,
        )

    def decode_run_ns(self, first: StepFeatures, num_steps: int) -> tuple[Int64, Int64]:
        device_ns, host_ns = self._model.decode_run_ns(first, num_steps)
        if self._is_launched_by_host(first):
            device_ns = np.maximum(device_ns, self._launch_ns)
        if self._is_cold_start(first):
            device_ns = device_ns.copy()
            device_ns[0] += self._cold_start_ns
        rows = first.num_prefill_rows + first.num_decode_rows
        return (
            device_ns + (self._gap_ns + self._row_gap_ns * rows + self._tokens_ns(first)),
            host_ns + (self._step_ns + self._row_ns * rows),
        )

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        if self._is_cold_start(first):
            self._cold_start_ns = 0
        self._model.consume(first, num_steps)

    def _is_launched_by_host(self, step: StepFeatures) -> bool:
        return step.num_prefill_rows > 0 and step.num_tokens > self._prefill_graph_tokens

    def _is_cold_start(self, step: StepFeatures) -> bool:
        return self._cold_start_ns > 0 and step.num_prefill_tokens >= self._cold_start_tokens

    def _tokens_ns(self, step: StepFeatures) -> int:
        """What the new tokens add if any rank has prefill rows; the same for each of the ranks."""
        if not (self._token_gap_s and (step.group_prefills or step.num_prefill_rows)):
            return 0
        return seconds_to_ns(self._token_gap_s * (step.num_group_tokens or step.num_tokens))


_FORMAT = "servetwin-host-times"
_VERSION = 1
_KEYS = {"format", "version", "host_s", "host_per_request_s", "fit"}
# A minute: the limit of every time in a scenario.
_MAX_S = 60


class HostTimes(NamedTuple):
    """How long the host works for a step.

    Attributes:
        per_request_s: seconds for each prefill or decode row.
    """

    host_s: float = 0.0
    per_request_s: float = 0.0

    def host_ns(self, num_rows: int) -> int:
        """The host time of a step with this number of rows."""
        return seconds_to_ns(self.host_s + self.per_request_s * num_rows)


def read_host_times(path: Path) -> HostTimes:
    data = read_json_object(path)
    if data.get("format") != _FORMAT:
        raise InputError(f"{path}: format: must be {_FORMAT}, got {data.get('format')!r}")
    if data.get("version") != _VERSION:
        raise InputError(f"{path}: version: must be {_VERSION}, got {data.get('version')!r}")
    unknown = sorted(data.keys() - _KEYS)
    if unknown:
        raise InputError(f"{path}: {unknown[0]}: unknown key")
    if not isinstance(data.get("fit", {}), dict):
        raise InputError(f"{path}: fit: must be an object, got {data['fit']!r}")
    return HostTimes(_seconds(data, "host_s", path), _seconds(data, "host_per_request_s", path))


def write_host_times(times: HostTimes, fit: Mapping[str, object], path: Path) -> None:
    """Write a file of host times; `fit` says what they were fitted to, and how well."""
    data = {
        "format": _FORMAT,
        "version": _VERSION,
        "host_s": times.host_s,
        "host_per_request_s": times.per_request_s,
        "fit": dict(fit),
    }
    text = json.dumps(data, indent=2, allow_nan=False) + "\n"
    with atomic_path(path) as beside:
        beside.write_text(text, encoding="utf-8")


def _seconds(data: Mapping[str, object], key: str, path: Path) -> float:
    value = data.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InputError(f"{path}: {key}: must be a number of seconds, got {value!r}")
    if not isfinite(value) or not 0 <= value <= _MAX_S:
        raise InputError(f"{path}: {key}: must be between 0 and {_MAX_S} seconds, got {value!r}")
    return float(value)

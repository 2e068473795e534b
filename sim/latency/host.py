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

from pydantic import Field

from sim.core.declared import MAX_COUNT
from sim.core.errors import InputError, unknown_name
from sim.core.files import atomic_path
from sim.core.packed import read_json_object
from sim.core.units import seconds_to_ns
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

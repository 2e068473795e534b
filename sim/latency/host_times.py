"""Host time of a step: a constant and a time for each request in it; reads and writes its file.

A file is JSON: `{"format": "servetwin-host-times", "version": 1, "host_s": ..,
"host_per_request_s": .., "fit": {..}}`; `fit` says where the numbers come from.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from sim.core.errors import InputError
from sim.core.files import atomic_path
from sim.core.json_object import read_json_object
from sim.core.units import seconds_to_ns

_FORMAT = "servetwin-host-times"
_VERSION = 1
_KEYS = {"format", "version", "host_s", "host_per_request_s", "fit"}
# A minute: the limit of every time in a scenario.
_MAX_S = 60


@dataclass(frozen=True, slots=True)
class HostTimes:
    """How long the host works for a step.

    Attributes:
        host_s: seconds for each step.
        per_request_s: seconds for each prefill or decode row.
    """

    host_s: float = 0.0
    per_request_s: float = 0.0

    def host_ns(self, num_rows: int) -> int:
        """The host time of a step with this number of rows."""
        return seconds_to_ns(self.host_s + self.per_request_s * num_rows)


def read_host_times(path: Path) -> HostTimes:
    """Read a file of host times.

    Raises:
        InputError: the file cannot be read, is no file of host times, or has another version.
    """
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
    """Write a file of host times; `fit` says in JSON types what they were fitted to, and how well.

    Raises:
        InputError: the file cannot be written.
    """
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

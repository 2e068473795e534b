"""Host times as a file: what a server's CPU adds to each step, and how that was estimated."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.core.atomic import atomic_path
from sim.core.errors import InputError

FORMAT = "servetwin-host-times"
VERSION = 1

# As in a scenario's latency section: far above any real cost.
_MOST_S = 60.0


@dataclass(frozen=True, slots=True)
class HostTimes:
    """Seconds of host time: of every step, and of every request in it."""

    host_s: float
    per_request_s: float


def read_host_times(path: Path) -> HostTimes:
    """Read what `write_host_times` wrote.

    Raises:
        InputError: unreadable, or not a file of host times this version reads; names the key.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path}: not JSON") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError(f"{path}: format: expected {FORMAT!r}, as calibrate fit writes it")
    if data.get("version") != VERSION:
        raise InputError(f"{path}: version: expected {VERSION}, got {data.get('version')!r}")
    return HostTimes(*(_seconds(data, key, path) for key in ("host_s", "host_per_request_s")))


def write_host_times(times: HostTimes, fit: Mapping[str, Any], path: Path) -> None:
    """Write the times, and what is known of their fit as plain JSON values.

    Raises:
        InputError: the file cannot be written.
    """
    data = {
        "format": FORMAT,
        "version": VERSION,
        "host_s": times.host_s,
        "host_per_request_s": times.per_request_s,
        "fit": dict(fit),
    }
    text = json.dumps(data, indent=2, allow_nan=False, ensure_ascii=False)
    with atomic_path(path) as beside:
        beside.write_text(text + "\n", encoding="utf-8")


def _seconds(data: Mapping[str, Any], key: str, path: Path) -> float:
    value = data.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MOST_S:
        return float(value)
    raise InputError(f"{path}: {key}: must be seconds from 0 to {_MOST_S:.0f}, got {value!r}")

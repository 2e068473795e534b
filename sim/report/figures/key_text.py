"""Names, units and values of swept keys in words, as pictures and pages have them."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from sim.core.units import NS_PER_S
from sim.sweep.results import Settings, same

# For each key that limits something, the value that means unlimited.
_NO_LIMIT: Mapping[str, Any] = {
    "t_ms": None,
    "prefill_max_requests": None,
    "chunked_prefill_size": -1,
}
_UNITS: Mapping[str, str] = {
    "page_size": "tokens",
    "context_length": "tokens",
    "chunked_prefill_size": "tokens",
    "max_running_requests": "requests",
    "prefill_max_requests": "requests",
    "num_requests": "requests",
    "lookahead": "requests",
    "k": "requests",
    "tokens": "tokens",
    "passes": "passes",
    "force_fifo_every": "passes",
    "mem_fraction_static": "share of memory",
    "replicas": "servers",
    "time_scale": "times the trace's arrival times",
    "clients": "clients",
    "sessions": "sessions",
    "share_probability": "share of requests",
    "limit": "requests",
}
_SUFFIXES: Mapping[str, str] = {
    "_ms": "ms",
    "_gb_s": "GB/s",
    "_tokens_per_s": "tokens/s",
    "_s": "s",
    "_rps": "requests/s",
    "_tokens": "tokens",
    "_pct": "%",
}
# Units that a legend shows; other keys' names say enough.
_SHOWN_UNITS = {"ms", "s", "requests/s", "tokens", "tokens/s", "GB/s"}
_NAMES: Mapping[str, str] = {"t_ms": "FAIRNESS_T"}
_LOAD_KEYS = ("rate_rps", "time_scale", "every_s")
_CLIENT_KEYS = ("clients", "sessions", "at_a_time", "max_concurrency", "request_rate")
# A larger number is less load for each server.
_RELIEF_KEYS = ("replicas",)
_MAX_TEXT = 40
# A mapping with one of these keys is understood without the swept key's name: `k_lpm, k 4`.
_NAMING_KEYS = frozenset({"kind", "family"})


def last_part(key: str) -> str:
    return key.rpartition(".")[2]


def changes_arrivals(key: str) -> bool:
    """Whether a number of this key sets when requests arrive."""
    return last_part(key) in _LOAD_KEYS


def makes_load(key: str) -> bool:
    """Whether a number of this key sets how much load the server gets."""
    return last_part(key) in (*_LOAD_KEYS, *_CLIENT_KEYS, *_RELIEF_KEYS)


def relieves_load(key: str) -> bool:
    """Whether a larger number of this key is less load for each server."""
    return last_part(key) in _RELIEF_KEYS


def number_of(key: str, value: Any) -> float:
    """A swept value as a number: infinity if it means no limit, NaN for any other null."""
    name = last_part(key)
    if name in _NO_LIMIT and value == _NO_LIMIT[name]:
        return math.inf
    return math.nan if value is None else float(value)


def value_text(key: str, value: Any) -> str:
    """A swept value in words: `4,096`, `∞`, `k_lpm, k 4`."""
    name = last_part(key)
    if name in _NO_LIMIT and value == _NO_LIMIT[name] and not isinstance(value, bool):
        return "∞"
    if value is None:
        return "none"
    if isinstance(value, str):
        return _cut(value)
    if isinstance(value, Mapping):
        return _cut(_mapping_text(value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _cut(json.dumps(value))
    return number_text(value)


def number_text(value: float) -> str:
    """A number with up to six digits; from 10,000 on with commas between thousands."""
    if float(value).is_integer() and abs(value) < 10**15:
        return f"{int(value):,}" if abs(value) >= 10_000 else str(int(value))
    return f"{value:.6g}"


def key_name(key: str, keys: Iterable[str]) -> str:
    """The name of a swept key: the shortest end of its path that no other key has."""
    short = short_names(keys).get(key, key)
    return _NAMES.get(short, short)


def short_names(keys: Iterable[str]) -> Mapping[str, str]:
    """For each key path its shortest end that differs from those of the other paths."""
    paths = list(keys)
    names = {}
    for key in paths:
        parts = key.split(".")
        ends = [".".join(parts[-n:]) for n in range(1, len(parts) + 1)]
        others = [other for other in paths if other != key]
        names[key] = next(
            end
            for end in ends
            if not any(f".{other}".endswith(f".{end}") for other in others) or end == key
        )
    return names


def key_label(key: str, keys: Iterable[str]) -> str:
    """The title of an axis: `page_size (tokens)`."""
    unit = key_unit(key)
    name = key_name(key, keys)
    return f"{name} ({unit})" if unit else name


def key_unit(key: str) -> str:
    name = last_part(key)
    if name in _UNITS:
        return _UNITS[name]
    return next((unit for end, unit in _SUFFIXES.items() if name.endswith(end)), "")


def setting_text(setting: Settings, keys: Iterable[str]) -> str:
    """A setting in words: `t_ms 200, lpm`. Keys are named where values do not say enough."""
    keys = list(keys)
    parts = []
    for key, value in setting.items():
        text = value_text(key, value)
        bare = isinstance(value, str) or (
            isinstance(value, Mapping) and not _NAMING_KEYS.isdisjoint(value)
        )
        unit = f" {key_unit(key)}" if key_unit(key) in _SHOWN_UNITS else ""
        shown = f"{key_name(key, keys)} {text}{'' if text in {'none', '∞'} else unit}"
        parts.append(text if bare else shown)
    return ", ".join(parts)


def where_text(wanted: Settings, keys: Iterable[str]) -> str:
    """The settings that a plot is narrowed down to, in words: `t_ms 200 or 400, lpm`."""
    keys = list(keys)
    parts = []
    for key, values in wanted.items():
        listed = values if isinstance(values, list | tuple) else [values]
        texts = list({same(value): value_text(key, value) for value in listed}.values())
        parts.append(f"{key_name(key, keys)} {' or '.join(texts)}")
    return ", ".join(parts)


def _mapping_text(value: Mapping[str, Any]) -> str:
    if "family" in value:
        return str(value["family"])  # a whole scheduler
    kind = [str(value["kind"])] if "kind" in value else []
    rest = [f"{key} {value_text(key, item)}" for key, item in value.items() if key != "kind"]
    return ", ".join([*kind, *rest])


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"


def time_unit(duration_ns: int) -> tuple[int, str]:
    """The unit for a time axis of this length: its ns, and its name."""
    if duration_ns < 600 * NS_PER_S:
        return NS_PER_S, "s"
    if duration_ns < 3 * 3_600 * NS_PER_S:
        return 60 * NS_PER_S, "min"
    return 3_600 * NS_PER_S, "h"


def latency_text(milliseconds: float) -> str:
    """A latency with its unit, to three digits."""
    if milliseconds < 1_000:
        return f"{milliseconds:.3g} ms"
    if milliseconds < 999_500:
        return f"{milliseconds / 1_000:.3g} s"
    return f"{milliseconds / 1_000:,.0f} s"

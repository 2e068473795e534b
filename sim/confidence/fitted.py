"""Intervals of a server whose step times were fitted to its own measured requests.

    half width = half width of the requests held out x (1 + _PER_DOUBLING x doublings of the load)

Half widths are natural logarithms of measured over simulated means. Doublings count from the loads
that were fitted; `docs/explanation/confidence.md` says where `_PER_DOUBLING` is from, and how often
the intervals hold.
"""

import math
from collections.abc import Mapping
from typing import Any

from sim.core.files import json_digest
from sim.scenario.fitted_section import FittedSection
from sim.scenario.load import LoadedScenario

LEVEL_PCT = 90.0
# Sections whose values belong to the fitted server.
_SETTINGS = ("model", "hardware", "latency", "host", "scheduler", "acceptance", "pools")
_PER_DOUBLING, MOST_DOUBLINGS = 1.25, 2.0
_NAMES = {"ttft": "mean_ttft_ms", "tpot": "mean_tpot_ms"}
# `half_width` needs this many errors: the largest of fewer may be exceeded more often than 1 in 10.
FEWEST = 9


def settings_of(raw: Mapping[str, Any]) -> str:
    """Hash of the sections in `_SETTINGS` of a scenario file, the first 16 hexadecimal digits."""
    return json_digest({name: raw[name] for name in _SETTINGS if name in raw})[:16]


def half_width(errors: list[float]) -> float | None:
    """How far off a further error is at most, in nine of ten cases; None: too few to say.

    Split conformal prediction: of `n` absolute errors, the one at place (n + 1) x 90 %, rounded up.
    """
    place = math.ceil((len(errors) + 1) * LEVEL_PCT / 100)
    return sorted(map(abs, errors))[place - 1] if place <= len(errors) else None


def from_fit(
    section: FittedSection, loaded: LoadedScenario, summary: Mapping[str, Any]
) -> dict[str, Any]:
    """See `sim.confidence.confidence.confidence_of`, of a scenario with a section `fitted`."""
    if section.settings != settings_of(loaded.raw):
        return {"no_interval": "the server's settings are no longer those that were fitted"}
    if section.ttft is None and section.tpot is None:
        runs = "1 run" if section.runs == 1 else f"{section.runs} runs"
        what = f"{runs} fitted, {section.held_out} groups of requests held out"
        return {"no_interval": f"{what}: an interval takes {FEWEST}"}
    load = load_of(summary, summary.get("mean_replicas") or loaded.scenario.replicas)
    away = max(doublings(value, *getattr(section, name)) for name, value in load.items())
    if away > MOST_DOUBLINGS:
        times = f"{2**MOST_DOUBLINGS:.0f}"
        return {"no_interval": f"the load is more than {times} times off all that were fitted"}
    found: dict[str, Any] = {"level_pct": LEVEL_PCT}
    for name, metric in _NAMES.items():
        half, value = getattr(section, name), summary.get(metric)
        if half is not None and value is not None:
            factor = math.exp(widened(half, away))
            found[metric] = {"low": value / factor, "high": value * factor}
    return found


def load_of(summary: Mapping[str, Any], servers: float = 1) -> dict[str, float]:
    """Mean requests in each of a run's servers, and mean tokens of its requests."""
    num = summary["completed"]
    return {
        "concurrency": (summary["concurrency"] or 0.0) / servers,
        "prompt_tokens": summary["total_input_tokens"] / num,
        "output_tokens": summary["total_output_tokens"] / num,
    }


def widened(half: float, away: float) -> float:
    """The half width at a load that is `away` doublings outside of those that were fitted."""
    return half * (1 + _PER_DOUBLING * away)


def doublings(value: float, least: float, most: float) -> float:
    """How often a value must be doubled or halved to be between `least` and `most`; 0 inside."""
    if not least or not value:
        return 0.0 if least <= value <= most else math.inf
    return max(math.log2(least / value), math.log2(value / most), 0.0)

"""How far to believe a fitted scenario: its section `fitted`, from the requests held out."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calibrate.coefficients.runs import FitRun
from calibrate.measured.compare import RunComparison, rounded
from calibrate.measured.pairs import MeasuredPairs
from sim.confidence.intervals import half_width, load_of, settings_of
from sim.metrics.summary import summarise
from sim.runlog import RunLog

# A mean of fewer requests is mostly chance; with more there would be fewer means.
_PER_GROUP = 10


def fitted_section(
    runs: Sequence[FitRun],
    logs: Sequence[RunLog],
    held_out: Sequence[RunComparison],
    raw: Mapping[str, Any],
) -> dict[str, Any]:
    """The section, as YAML has it.

    Args:
        runs: the measured runs.
        logs: each simulated with the fitted values.
        held_out: each compared over the requests that the fit has not seen.
        raw: the fitted scenario.
    """
    loads = [load_of(summarise(log)) for log in logs]
    groups = [group_errors(each.pairs) for each in held_out]
    half_widths = {
        name: half_width([error for each in groups for error in each[name]])
        for name in ("ttft", "tpot")
    }
    return {
        "requests": sum(run.first for run in runs),
        "runs": len(runs),
        "held_out": sum(len(each["tpot"]) for each in groups),
        **{
            name: [rounded(end(load[name] for load in loads)) for end in (min, max)]
            for name in loads[0]
        },
        **{name: rounded(half) for name, half in half_widths.items() if half},
        "settings": settings_of(raw),
    }


def group_errors(pairs: MeasuredPairs) -> dict[str, list[float]]:
    """Logarithms of measured over simulated means, of groups of requests by their arrival."""
    ours, theirs = pairs.measured.latencies_ms(), pairs.simulated.latencies_ms()
    num_groups = len(pairs) // _PER_GROUP
    groups = np.array_split(np.arange(len(pairs)), num_groups) if num_groups else []
    found: dict[str, list[float]] = {"ttft": [], "tpot": []}
    for name, errors in found.items():
        known = (ours[name] > 0) & (theirs[name] > 0)
        for rows in (group[known[group]] for group in groups):
            if len(rows):
                errors.append(float(np.log(ours[name][rows].mean() / theirs[name][rows].mean())))
    return found

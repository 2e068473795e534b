"""What `calibrate fit RESULTS` prints and writes about a fit."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from calibrate.coefficients.fit import CoefficientFit
from calibrate.coefficients.result_files import ResultFile
from calibrate.measured.compare import LATENCIES, RunComparison, rounded
from calibrate.measured.host_report import mean_errors
from sim.confidence.intervals import FEWEST, LEVEL_PCT
from sim.tables.table import Table, columns_of, number, number_as

# If means of requests that the fit has not seen are further off, the simulation lacks something.
_NEAR_PCT = 5.0
_WAITS = (
    "TTFT is further off than TPOT: requests wait for something that the scenario does not have."
    " Give the server's flags (--server), or its settings (--set scheduler.KEY=VALUE): largest"
    " number of running requests, tokens of a prefill step, size of the KV pool, prefix caching"
)
_OTHER_LOAD = (
    "the held-out requests met another load than those that the fit saw: fit to more of them"
    " (--first N), or to results at several loads (give several files)"
)


def coefficient_table(fit: CoefficientFit) -> Table:
    """The fitted coefficients with their intervals, by their keys in a scenario."""
    rows = [
        (each.key, f"{each.value:.4g}", f"{each.low:.4g}", f"{each.high:.4g}") for each in fit.found
    ]
    return Table(columns_of(("coefficient",), ("value", "95 % from", "to")), rows)


def error_table(parts: Mapping[str, RunComparison]) -> Table:
    """Mean latencies of each part of the requests, measured and simulated."""
    rows = []
    for part, comparison in parts.items():
        for name, errors in comparison.latencies.items():
            mean = errors.values["mean"]
            rows.append((
                part, LATENCIES[name], number(mean.measured), number(mean.simulated),
                number_as("+.2f", mean.error_pct), number_as(".2f", errors.request_error_pct),
            ))  # fmt: skip
    headers = ("measured", "simulated", "error %", "|error| of\na request %")
    return Table(columns_of(("requests", "mean ms"), headers), rows)


def verdict(fit: CoefficientFit, held_out: Sequence[RunComparison]) -> Iterator[str]:
    """How far the simulation is on requests that the fit has not seen, and what may be missing."""
    errors = {
        name: max((_error(each, name) for each in held_out), key=abs) for name in ("ttft", "tpot")
    }
    words = ", ".join(f"mean {LATENCIES[name]} {error:+.1f} %" for name, error in errors.items())
    largest = "" if len(held_out) == 1 else " (the largest of all files)"
    yield f"requests that the fit has not seen: {words}{largest}"
    if max(map(abs, errors.values())) <= _NEAR_PCT:
        return
    if abs(errors["ttft"]) > max(_NEAR_PCT, abs(errors["tpot"])):
        yield _WAITS
    else:
        yield _OTHER_LOAD
    if fit.refused:
        yield "a coefficient that is not determined may be what is missing"


def trust_line(fitted: Mapping[str, Any]) -> str:
    """How far off means are, from the requests held out; or that there are too few to say."""
    groups = f"{fitted['held_out']} groups of ten requests held out"
    ends = [
        f"mean {LATENCIES[name]} x {math.exp(-half):.2f} to x {math.exp(half):.2f}"
        for name in ("ttft", "tpot")
        if (half := fitted.get(name)) is not None
    ]
    if not ends:
        return f"no interval: {groups}; an interval takes {FEWEST}"
    return f"{LEVEL_PCT:.0f} % interval near these loads: {', '.join(ends)}, from {groups}"


def speculation(files: Sequence[ResultFile]) -> Iterator[str]:
    """Remarks on files of servers that may give several tokens in a step."""
    for file in files:
        if (tokens := file.source.facts.tokens_at_a_time) is not None:
            yield (
                f"{file.path.name}: tokens came {tokens:.3g} at a time. If the server speculates,"
                " these are not the times of its steps, but of a server that is as fast with one"
                " token a step"
            )


def _error(comparison: RunComparison, name: str) -> float:
    return comparison.latencies[name].values["mean"].error_pct or 0.0


def document(
    fit: CoefficientFit, parts: Mapping[str, RunComparison], remarks: Sequence[str]
) -> dict[str, Any]:
    """The fit as plain JSON values; equal input gives an equal document."""
    return {
        "coefficients": {
            each.key: {"value": each.value, "low": each.low, "high": each.high}
            for each in fit.found
        },
        "not_determined": {
            each.key: {"held": each.held, "reason": each.reason} for each in fit.refused
        },
        "remarks": list(remarks),
        "off": rounded(fit.size),
        "requests": fit.num_requests,
        "simulations": fit.num_simulations,
        "errors": {part: mean_errors(comparison) for part, comparison in parts.items()},
    }

"""What `calibrate fit --scenario` prints and writes about estimated host times."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from calibrate.measured.compare import LATENCIES, RunComparison, rounded
from calibrate.measured.host_fit import HostFit
from sim.latency.host import HostTimes
from sim.scenario.load import LoadedScenario
from sim.tables.table import Table, columns_of, number_as


def fit_table(fit: HostFit) -> Table:
    """Errors of the simulation with the scenario's own host times and with the estimate."""
    sides = (fit.before, fit.after)
    rows: list[tuple[str, ...]] = []
    for name, words in LATENCIES.items():
        of_side = [side.latencies[name] for side in sides]
        means = (number_as("+.2f", errors.values["mean"].error_pct) for errors in of_side)
        sizes = (number_as(".2f", errors.request_error_pct) for errors in of_side)
        rows += [(f"{words} mean", *means), (f"{words} of a request, mean |error|", *sizes)]
    makespans = (number_as("+.2f", side.makespan_s.error_pct) for side in sides)
    objectives = (fit.objective_before, fit.objective_after)
    rows += [
        ("makespan", *makespans),
        ("decode times, robust r.m.s.", *(f"{100 * value:.2f}" for value in objectives)),
    ]
    return Table(columns_of(("error % of the simulation",), ("before", "after")), rows)


def fit_lines(fit: HostFit, *, per_request: bool) -> Iterator[str]:
    """The estimate with its standard errors."""
    times, errors = fit.times, fit.std_errors
    yield f"host time of a step: {times.host_s * 1e3:.4f} ms, ± {errors.host_s * 1e3:.4f}"
    if per_request:
        micros = (times.per_request_s * 1e6, errors.per_request_s * 1e6)
        yield "of a request in it: {:.3f} µs, ± {:.3f}".format(*micros)
    yield (
        f"± one standard error, from the residuals of {fit.num_requests} requests, which share"
        f" steps; {fit.num_simulations} simulations"
    )
    yield from fit.remarks


def scenario_line(times: HostTimes, loaded: LoadedScenario, written: Path) -> str:
    """The line to put into the scenario."""
    if "host" in type(loaded.scenario.latency).model_fields:
        where = Path(os.path.relpath(written, loaded.base_dir)).as_posix()
        return f"in the scenario, under latency: host: {where}"
    return f"in the scenario, under latency: host_s: {times.host_s}"


def fit_document(
    fit: HostFit, loaded: LoadedScenario, measured: Path, judged: Mapping[str, Any]
) -> dict[str, Any]:
    """The facts about the fit that the file of host times keeps."""
    return {
        "scenario": loaded.scenario.name,
        "scenario_hash": loaded.content_hash,
        "measured": measured.name,
        "judged": dict(judged),
        "num_requests": fit.num_requests,
        "num_simulations": fit.num_simulations,
        "host_s_std_error": fit.std_errors.host_s,
        "host_per_request_s_std_error": fit.std_errors.per_request_s,
        "correlation": rounded(fit.correlation),
        "objective_before": rounded(fit.objective_before),
        "objective_after": rounded(fit.objective_after),
        "before": mean_errors(fit.before),
        "after": mean_errors(fit.after),
        "remarks": list(fit.remarks),
    }


def mean_errors(comparison: RunComparison) -> dict[str, Any]:
    """The errors of each latency: of its mean, and of single requests."""
    return {
        name: {
            "mean_error_pct": rounded(errors.values["mean"].error_pct),
            "request_error_pct": rounded(errors.request_error_pct),
        }
        for name, errors in comparison.latencies.items()
    }

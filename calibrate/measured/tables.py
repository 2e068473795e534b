"""A validation against a measured run as text: requests, latencies, sizes over time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple

from calibrate.measured.compare import LATENCIES, ComparedValue, RunComparison
from calibrate.measured.over_time import OverTime
from calibrate.measured.pairs import MeasuredPairs, Selection
from calibrate.measured.validate import MeasuredValidation
from sim.tables.table import Table, columns_of, number, number_as

_MAX_NAMES = 10


def request_lines(validation: MeasuredValidation) -> Iterator[str]:
    """How many requests were compared, which were not, and which differ in tokens."""
    counts = (validation.num_measured, validation.num_simulated)
    yield "{:,} requests measured, {:,} simulated".format(*counts)
    yield from pair_lines(validation.comparison.pairs, validation.selection)


def pair_lines(pairs: MeasuredPairs, selection: Selection) -> Iterator[str]:
    """How many of the selected requests were compared, and everything unusual about them."""
    yield f"judged: {selection} ({pairs.num_judged:,}), compared: {len(pairs):,}"
    failed = [f"{rid} ({status})" for rid, status in pairs.failed_simulated.items()]
    for what, names in (
        ("measured, not in the simulation", pairs.only_measured),
        ("in the simulation, not measured", pairs.only_simulated),
        ("did not finish when measured", pairs.failed_measured),
        ("do not finish in the simulation", failed),
        ("prompt tokens differ (measured/simulated)", _counts(pairs.differing("prompt_tokens"))),
        ("output tokens differ (measured/simulated)", _counts(pairs.differing("output_tokens"))),
    ):
        if names:
            yield f"{what}: {len(names):,}: {_listed(names)}"


def tables(validation: MeasuredValidation) -> Iterator[Table]:
    """All tables, in reading order."""
    yield latency_table(validation.comparison)
    if validation.over_time is not None:
        yield over_time_table(validation.over_time)


def latency_table(comparison: RunComparison) -> Table:
    """Each statistic of each latency, then makespan and throughput."""
    rows: list[tuple[str, ...]] = []
    for name, errors in comparison.latencies.items():
        words = LATENCIES[name]
        rows += [
            (f"{words} {statistic} ms", *_cells(value))
            for statistic, value in errors.values.items()
        ]
        size = number_as(".2f", errors.request_error_pct)
        rows.append((f"{words} of a request, mean |error|", "", "", size))
    rows.append(("makespan s", *_cells(comparison.makespan_s)))
    rows.append(("output tokens/s", *_cells(comparison.output_throughput)))
    return Table(columns_of(("",), ("measured", "simulated", "error %")), rows)


def over_time_table(over_time: OverTime) -> Table:
    """Running and waiting requests: both means, then the mean and largest absolute difference."""
    samples = f"requests, {len(over_time.measured.t_s):,} samples"
    headers = ("measured", "simulated", "mean |difference|", "largest")
    rows = [(name, *astuple(errors)) for name, errors in over_time.errors.items()]
    return Table(columns_of((samples,), headers, to_text=number), rows)


def _cells(value: ComparedValue) -> tuple[str, str, str]:
    error = number_as("+.2f", value.error_pct)
    return number(value.measured), number(value.simulated), error


def _counts(differing: Mapping[str, tuple[int, int]]) -> list[str]:
    counts = differing.items()
    return [f"{rid} ({measured:,}/{simulated:,})" for rid, (measured, simulated) in counts]


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MAX_NAMES])
    more = len(names) - _MAX_NAMES
    return shown if more <= 0 else f"{shown} and {more:,} more (--format json names all)"

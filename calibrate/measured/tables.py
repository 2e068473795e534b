"""A validation against a measured run as text: who was compared, latencies, sizes over time."""

from collections.abc import Iterator, Mapping, Sequence

from rich.table import Table

from calibrate.measured.compare import LATENCIES, ComparedValue, RunComparison
from calibrate.measured.over_time import OverTime
from calibrate.measured.pairs import Pairs, Selection
from calibrate.measured.validate import MeasuredValidation
from calibrate.tables import new_table
from sim.report.numbers import UNDEFINED, number

_MAX_NAMES = 10


def request_lines(validation: MeasuredValidation) -> Iterator[str]:
    """How many requests were compared, and which were not or are not alike."""
    counts = (validation.num_measured, validation.num_simulated)
    yield "{:,} requests measured, {:,} simulated".format(*counts)
    yield from pair_lines(validation.comparison.pairs, validation.selection)


def pair_lines(pairs: Pairs, selection: Selection) -> Iterator[str]:
    """How many of the selected requests were compared, and all that is not as it should be."""
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
    """Everything, in reading order."""
    yield latency_table(validation.comparison)
    if validation.over_time is not None:
        yield over_time_table(validation.over_time)


def latency_table(comparison: RunComparison) -> Table:
    """Each statistic of each latency, then makespan and throughput."""
    table = new_table(("",), ("measured", "simulated", "error %"))
    for name, errors in comparison.latencies.items():
        for statistic, value in errors.values.items():
            table.add_row(f"{LATENCIES[name]} {statistic} ms", *_cells(value))
        error_pct = errors.request_error_pct
        size = UNDEFINED if error_pct is None else f"{error_pct:.2f}"
        table.add_row(f"{LATENCIES[name]} of a request, mean |error|", "", "", size)
    table.add_row("makespan s", *_cells(comparison.makespan_s))
    table.add_row("output tokens/s", *_cells(comparison.output_throughput))
    return table


def over_time_table(over_time: OverTime) -> Table:
    """Means over the samples, and how far apart the two are in each."""
    samples = f"requests, {len(over_time.measured.t_s):,} samples"
    table = new_table((samples,), ("measured", "simulated", "mean |difference|", "largest"))
    for name, errors in over_time.errors.items():
        table.add_row(
            name,
            number(errors.mean_measured),
            number(errors.mean_simulated),
            number(errors.mean_difference),
            number(errors.max_difference),
        )
    return table


def signed(percent: float | None) -> str:
    """An error in percent."""
    return UNDEFINED if percent is None else f"{percent:+.2f}"


def _cells(value: ComparedValue) -> tuple[str, str, str]:
    return number(value.measured), number(value.simulated), signed(value.error_pct)


def _counts(differing: Mapping[str, tuple[int, int]]) -> list[str]:
    return [f"{rid} ({ours:,}/{theirs:,})" for rid, (ours, theirs) in differing.items()]


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MAX_NAMES])
    more = len(names) - _MAX_NAMES
    return shown if more <= 0 else f"{shown} and {more:,} more (--format json names all)"

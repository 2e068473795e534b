"""A profile as tables: errors by mode, terms with their units, what it was measured on."""

from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from sim.latency.profile.format import Errors, LatencyProfile, Term, mode_of
from sim.latency.profile.terms import MODE_TERMS, QUANTITIES
from sim.report.numbers import number

ERROR_COLUMNS = ("points", "MAPE %", "p50 %", "p95 %", "max %", "total %", "outliers")


def error_table(profile: LatencyProfile) -> Table:
    """Errors of held-out steps, device times first, then host times by way of scheduling."""
    table = new_table(("held-out error of", "mode"), ERROR_COLUMNS)
    for mode, device in profile.modes.items():
        table.add_row("device", mode, *error_cells(device.errors))
    for host in profile.host:
        for mode, section in host.modes.items():
            table.add_row(f"host, {host.scheduling}", mode, *error_cells(section.errors))
    return table


def term_table(profile: LatencyProfile) -> Table:
    """What the times are made of."""
    table = new_table(("time", "mode", "term"), ("ns",), ("per",))
    for mode, device in profile.modes.items():
        _add_terms(table, "device", mode, device.terms)
        if device.correction is not None:
            first, second = (QUANTITIES[axis.quantity].label for axis in device.correction.axes)
            factors = [factor for row in device.correction.factors for factor in row]
            span = f"x {min(factors):.3f} to {max(factors):.3f}"
            table.add_row("device", mode, f"by {first} and {second}", span, "")
    for host in profile.host:
        for mode, section in host.modes.items():
            _add_terms(table, f"host, {host.scheduling}", mode, section.terms)
    return table


def range_table(profile: LatencyProfile) -> Table:
    """What was measured, mode by mode."""
    table = new_table(("mode", "measured"), ("from", "to"))
    for mode, device in profile.modes.items():
        for name in MODE_TERMS[mode_of(mode)].ranges:
            span = device.range[name]
            words = QUANTITIES[name].label
            table.add_row(mode, words, number(round(span.low)), number(round(span.high)))
    return table


def fingerprint_table(profile: LatencyProfile) -> Table:
    """What it was measured on, and what it was fitted on."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, show_header=False)
    table.add_row("name", escape(profile.name))
    table.add_row("label", escape(profile.label))
    for key, value in profile.fingerprint.items():
        table.add_row(escape(key), escape(str(value)))
    graphs = ", ".join(map(str, profile.graph_sizes)) or "none"
    table.add_row("decode graphs", graphs)
    for source in profile.created_from:
        counts = f"{source.points:,} points, {source.steps:,} steps"
        table.add_row("fitted on", escape(f"{source.file} ({source.source}): {counts}"))
    return table


def remarks(profile: LatencyProfile) -> list[str]:
    """What a reader of the tables should know beside them, a line each."""
    lines = []
    absent = [mode for mode in ("extend", "decode", "mixed") if mode not in profile.modes]
    if absent == ["mixed"]:
        lines.append("mixed steps were not measured: they are put together from extend and decode")
    elif absent:
        lines.append(f"not measured, and refused: {', '.join(absent)}")
    schedulings = [host.scheduling for host in profile.host]
    if schedulings == ["not measured"]:
        lines.append("scheduling was not measured: host times are those of the parts around a pass")
    spread = profile.decode_spread
    if spread is not None:
        lines.append(
            f"longest over mean decode context: correlation {spread.correlation:+.2f} with what"
            f" the fit leaves over, {spread.variance_pct:.1f} % of its variance (not used)"
        )
    return lines


def new_table(left: Iterable[str], right: Iterable[str], after: Iterable[str] = ()) -> Table:
    """A table with these columns: to the left, to the right, and to the left again."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in left:
        table.add_column(name)
    for name in right:
        table.add_column(name, justify="right")
    for name in after:
        table.add_column(name)
    return table


def error_cells(errors: Errors) -> tuple[str, ...]:
    """A row for `ERROR_COLUMNS`."""
    values = (errors.mape_pct, errors.p50_pct, errors.p95_pct, errors.max_pct)
    sizes = (f"{value:.2f}" for value in values)
    return f"{errors.points:,}", *sizes, f"{errors.total_pct:+.2f}", f"{errors.outliers:,}"


def _add_terms(table: Table, time: str, mode: str, terms: Iterable[Term]) -> None:
    for term in terms:
        quantity = QUANTITIES[term.term]
        knee = f" above {term.knee:,.0f}" if term.knee else ""
        table.add_row(time, mode, quantity.label + knee, f"{term.ns:.4g}", quantity.unit)

"""A profile as tables: errors by mode, terms with their units, what it was measured on."""

from collections.abc import Iterable, Iterator

from sim.latency.profile.format import Errors, LatencyProfile, Term, mode_of
from sim.latency.profile.quantities import MODE_TERMS, QUANTITIES
from sim.tables.table import Column, Table, columns_of, number

ERROR_COLUMNS = ("points", "MAPE %", "p50 %", "p95 %", "max %", "total %", "outliers")


def error_table(profile: LatencyProfile) -> Table:
    """Errors of held-out steps: device times, host times by way of scheduling, launch times."""
    errors = {("device", mode): section.errors for mode, section in profile.modes.items()}
    for host in profile.host:
        name = f"host, {host.scheduling}"
        errors |= {(name, mode): section.errors for mode, section in host.modes.items()}
    errors |= {("launch", mode): section.errors for mode, section in profile.launch.items()}
    rows = [(*names, *error_cells(found)) for names, found in errors.items()]
    return Table(columns_of(("held-out error of", "mode"), ERROR_COLUMNS), rows)


def left_out_table(profile: LatencyProfile) -> Table:
    """Errors of device times on logs and large values that were left out of a fit."""
    rows = [(found.mode, found.what, *error_cells(found.errors)) for found in profile.left_out]
    return Table(columns_of(("device", "error on what was left out"), ERROR_COLUMNS), rows)


def term_table(profile: LatencyProfile) -> Table:
    """The terms of device, host and launch times."""
    return Table(columns_of(("time", "mode", "term"), ("ns",), ("per",)), list(_term_rows(profile)))


def range_table(profile: LatencyProfile) -> Table:
    """The measured ranges, by mode."""
    rows = []
    for mode, device in profile.modes.items():
        for name in MODE_TERMS[mode_of(mode)].ranges:
            span = device.range[name]
            rows.append((mode, QUANTITIES[name].label, round(span.low), round(span.high)))
    return Table(columns_of(("mode", "measured"), ("from", "to"), to_text=number), rows)


def fingerprint_table(profile: LatencyProfile) -> Table:
    """The device and libraries it was measured on, and the logs it was fitted to."""
    rows = [("name", profile.name), ("label", profile.label), *profile.fingerprint.items()]
    rows.append(("decode graphs", ", ".join(map(str, profile.graph_sizes)) or "none"))
    for source in profile.created_from:
        counts = f"{source.points:,} points, {source.steps:,} steps"
        rows.append(("fitted on", f"{source.file} ({source.source}): {counts}"))
    return Table([Column(is_text=True), Column(is_text=True)], rows)


def remarks(profile: LatencyProfile) -> list[str]:
    """Remarks for the reader of the tables, one line each."""
    lines = []
    absent = [mode for mode in ("extend", "decode", "mixed") if mode not in profile.modes]
    if absent == ["mixed"]:
        lines.append("mixed steps were not measured: they are put together from extend and decode")
    elif absent:
        lines.append(f"not measured, and refused: {', '.join(absent)}")
    schedulings = [host.scheduling for host in profile.host]
    if schedulings == ["not measured"]:
        lines.append("scheduling was not measured: host times lack the time to decide a step")
    spread = profile.decode_spread
    if spread is not None:
        lines.append(
            f"longest / mean decode context: correlation {spread.correlation:+.2f} with the"
            f" residuals, {spread.variance_pct:.1f} % of their variance (not used)"
        )
    return lines


def error_cells(errors: Errors) -> tuple[str, ...]:
    """The cells of a row for `ERROR_COLUMNS`."""
    values = (errors.mape_pct, errors.p50_pct, errors.p95_pct, errors.max_pct)
    sizes = (f"{value:.2f}" for value in values)
    return f"{errors.points:,}", *sizes, f"{errors.total_pct:+.2f}", f"{errors.outliers:,}"


def _term_rows(profile: LatencyProfile) -> Iterator[tuple[str, ...]]:
    for mode, device in profile.modes.items():
        yield from _terms("device", mode, device.terms)
        if device.correction is not None:
            first, second = (QUANTITIES[axis.quantity].label for axis in device.correction.axes)
            factors = [factor for row in device.correction.factors for factor in row]
            span = f"x {min(factors):.3f} to {max(factors):.3f}"
            yield "device", mode, f"by {first} and {second}", span, ""
    for host in profile.host:
        for mode, section in host.modes.items():
            yield from _terms(f"host, {host.scheduling}", mode, section.terms)
    for mode, launch in profile.launch.items():
        yield from _terms("launch", mode, launch.terms)


def _terms(time: str, mode: str, terms: Iterable[Term]) -> Iterator[tuple[str, ...]]:
    for term in terms:
        quantity = QUANTITIES[term.term]
        knee = f" above {term.knee:,.0f}" if term.knee else ""
        yield time, mode, quantity.label + knee, f"{term.ns:.4g}", quantity.unit

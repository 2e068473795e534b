"""A validation as tables: steps, then one table for each scenario, then ratios and rankings."""

from collections.abc import Iterator, Mapping, Sequence

from calibrate.errors import METRICS, OF_A_REQUEST
from calibrate.ranking import RANKED, Ranking
from calibrate.tables import ERROR_COLUMNS, error_cells
from calibrate.validate import STAGES, Case, Validation
from calibrate.validate_steps import StepErrors
from sim.metrics.registry import metric
from sim.tables.table import Table, columns_of, number, number_as, yes_or_no

_RATE = "output_throughput"
_RATIOS = ("mean_ttft_ms", "mean_tpot_ms", _RATE, "cache_hit_rate_pct")


def tables(validation: Validation) -> Iterator[Table]:
    """All tables, in reading order."""
    yield step_table(validation.steps)
    for case in validation.cases:
        yield case_table(case)
    yield ratio_table(validation.cases)
    for ranking in validation.rankings:
        yield ranking_table(ranking)


def step_table(steps: Mapping[str, StepErrors]) -> Table:
    """Errors of the profile's step times on the real runs' steps."""
    rows = [
        (part, mode, *error_cells(getattr(errors, part)))
        for part in ("device", "host")
        for mode, errors in steps.items()
    ]
    return Table(columns_of(("error of", "mode"), ERROR_COLUMNS), rows)


def case_table(case: Case) -> Table:
    """Real means, spread and 95 % margin of the repeats, and the errors of both simulations."""
    runs = f"{len(case.runs)} runs" if len(case.runs) > 1 else "1 run"
    columns = columns_of(
        (f"{case.label}, {runs}",),
        ("real", "spread %", "margin %", "recorded steps %", "profile %"),
        ("within margin",),
    )
    recorded, profile = (case.errors[stage] for stage in STAGES)
    rows: list[tuple[str, ...]] = [
        (
            words,
            number(case.real.mean[name]),
            number_as(".1f", case.real.spread_pct(name)),
            number_as(".1f", case.real.margin_pct(name)),
            number_as("+.1f", recorded.error_pct[name]),
            number_as("+.1f", profile.error_pct[name]),
            yes_or_no(profile.within[name]),
        )
        for name, words in METRICS.items()
    ]
    for name, words in OF_A_REQUEST.items():
        errors = (recorded.request_error_pct, profile.request_error_pct)
        sizes = (number_as(".1f", error[name]) for error in errors)
        spread = number_as(".1f", case.real.request_spread_pct[name])
        rows.append((f"{words}, mean |error|", "", spread, "", *sizes, ""))
    same = (_same_steps(case, stage) for stage in STAGES)
    return Table(columns, [*rows, ("same steps %", "", "", "", *same, "")])


def ratio_table(cases: Sequence[Case]) -> Table:
    """Simulated / real, scenario by scenario."""
    known = map(metric, _RATIOS)
    # A ratio has no unit, but the name of a rate contains its unit.
    headers = (
        m.table_heading_with_unit if m.unit == "tokens/s" else m.table_heading for m in known
    )
    rows = [
        (case.label,
         *(number_as(".3f", case.errors["profile"].ratio[name]) for name in _RATIOS))
        for case in cases
    ]  # fmt: skip
    return Table(columns_of(("simulated with the profile / real",), headers), rows)


def ranking_table(ranking: Ranking) -> Table:
    """Kendall's tau over clear pairs by metric and stage, and the pairs in the wrong order."""
    columns = columns_of(
        ("Kendall's tau of the order of",),
        ("clear pairs", "recorded steps", "profile", "p"),
        ("discordant with the profile",),
    )
    rows = []
    for name in RANKED:
        agreements = [ranking.agreements[stage].get(name) for stage in STAGES]
        profile = agreements[1]
        if profile is not None:
            pairs = "; ".join(f"{a} and {b}" for a, b in profile.discordant) or "none"
            clear = str(profile.clear_pairs)
            taus = (number_as("+.2f", found.tau if found else None) for found in agreements)
            chance = number_as(".3f", profile.p)
            rows.append((METRICS[name], clear, *taus, chance, pairs))
    return Table(columns, rows, note=" | ".join(ranking.labels))


def _same_steps(case: Case, stage: str) -> str:
    shares = [run.same_steps_pct for run in case.simulated[stage]]
    return f"{sum(shares) / len(shares):.1f}"

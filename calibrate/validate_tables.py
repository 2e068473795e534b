"""A validation as tables: steps, then one table a scenario, then ratios and rankings."""

from collections.abc import Iterator, Mapping, Sequence

from rich.markup import escape
from rich.table import Table

from calibrate.errors import METRICS, OF_A_REQUEST
from calibrate.ranking import RANKED, Agreement, Ranking
from calibrate.tables import ERROR_COLUMNS, error_cells, new_table
from calibrate.validate import STAGES, Case, Validation
from calibrate.validate_steps import StepErrors
from sim.report.numbers import number

_UNDEFINED = "-"
_RATIOS = {
    "mean_ttft_ms": "TTFT mean",
    "mean_tpot_ms": "TPOT mean",
    "output_throughput": "output tokens/s",
    "cache_hit_rate_pct": "cache hit rate",
}


def tables(validation: Validation) -> Iterator[Table]:
    """Everything, in reading order."""
    yield step_table(validation.steps)
    for case in validation.cases:
        yield case_table(case)
    yield ratio_table(validation.cases)
    for ranking in validation.rankings:
        yield ranking_table(ranking)


def step_table(steps: Mapping[str, StepErrors]) -> Table:
    """Errors of the profile's step times on the real runs' steps."""
    table = new_table(("error of", "mode"), ERROR_COLUMNS)
    for mode, errors in steps.items():
        table.add_row("device", mode, *error_cells(errors.device))
    for mode, errors in steps.items():
        table.add_row("host", mode, *error_cells(errors.host))
    return table


def case_table(case: Case) -> Table:
    """Real, the spread of its repeats, and the errors of both simulations."""
    table = new_table(
        (case_title(case),),
        ("real", "spread %", "recorded steps %", "profile %", "simulated/real"),
        ("within spread",),
    )
    recorded, profile = (case.errors[stage] for stage in STAGES)
    for metric, words in METRICS.items():
        table.add_row(
            words,
            number(case.real.mean[metric]),
            _size(case.real.spread_pct(metric)),
            _signed(recorded.error_pct[metric]),
            _signed(profile.error_pct[metric]),
            _ratio(profile.ratio[metric]),
            _yes(profile.within[metric]),
        )
    for metric, words in OF_A_REQUEST.items():
        table.add_row(
            f"{words}, mean |error|",
            "",
            _size(case.real.request_spread_pct[metric]),
            _size(recorded.request_error_pct[metric]),
            _size(profile.request_error_pct[metric]),
        )
    table.add_row("steps decided alike", "", "", *(_same_steps(case, stage) for stage in STAGES))
    return table


def case_title(case: Case) -> str:
    """The scenario, and how many runs of it."""
    runs = f"{len(case.runs)} runs" if len(case.runs) > 1 else "1 run"
    return escape(f"{case.label}, {runs}")


def ratio_table(cases: Sequence[Case]) -> Table:
    """Simulated / real, scenario by scenario."""
    table = new_table(("simulated with the profile / real",), _RATIOS.values())
    for case in cases:
        ratio = case.errors["profile"].ratio
        table.add_row(escape(case.label), *(_ratio(ratio[metric]) for metric in _RATIOS))
    return table


def ranking_table(ranking: Ranking) -> Table:
    """Kendall's tau by metric and stage, and what was put the wrong way round."""
    names = " | ".join(ranking.labels)
    columns = ("recorded steps", "profile", "clear pairs")
    table = new_table(("Kendall's tau of the order of",), columns, ("discordant with the profile",))
    for metric in RANKED:
        agreements = [ranking.agreements[stage].get(metric) for stage in STAGES]
        profile = agreements[1]
        if profile is None:
            continue
        table.add_row(
            METRICS[metric],
            *(_tau(agreement) for agreement in agreements),
            str(profile.clear_pairs),
            escape("; ".join(f"{a} and {b}" for a, b in profile.discordant) or "none"),
        )
    table.caption = escape(names)
    table.caption_justify = "left"
    return table


def _same_steps(case: Case, stage: str) -> str:
    shares = [run.same_steps_pct for run in case.simulated[stage]]
    return f"{sum(shares) / len(shares):.1f}"


def _tau(agreement: Agreement | None) -> str:
    return _UNDEFINED if agreement is None or agreement.tau is None else f"{agreement.tau:+.2f}"


def _signed(percent: float | None) -> str:
    return _UNDEFINED if percent is None else f"{percent:+.1f}"


def _size(percent: float | None) -> str:
    return _UNDEFINED if percent is None else f"{percent:.1f}"


def _ratio(ratio: float | None) -> str:
    return _UNDEFINED if ratio is None else f"{ratio:.3f}"


def _yes(flag: bool | None) -> str:
    return _UNDEFINED if flag is None else "yes" if flag else "no"

"""What a search for deployments found, as a table and sentences."""

from collections.abc import Iterator, Sequence

from sim.metrics.registry import metric
from sim.report.key_text import short_names
from sim.report.metric_columns import interval_text
from sim.report.sweep_tables import json_text
from sim.report.tune_tables import attainment_in_words, percent
from sim.sweep.candidates import in_words
from sim.sweep.capacity_files import tried_keys
from sim.sweep.capacity_plan import CapacityPlan
from sim.sweep.deployments import ATTAINMENT, Deployment, Verdict
from sim.tables.table import Table, columns_of
from sim.tables.text import UNDEFINED, number

_MAX_LISTED = 20
_SHOWN_METRICS = (ATTAINMENT, "p99_ttft_ms", "p99_tpot_ms")
# How far the step times of each kind can be trusted.
_JUDGED_BY = {
    "aiconfigurator": "operators measured on the GPU; docs/hardware.md compares them with servers",
    "profile": "fitted to a measured device; `calibrate show` prints how closely",
    "layers": "put together from published layer times (docs/explanation/layers.md)",
    "recorded": "those of one recorded run, whatever the deployment",
    "roofline": "from data sheets, not measured: compare one deployment with a real server first",
    "linear": "a formula of the scenario: as good as its numbers",
}


def plan_in_words(plan: CapacityPlan) -> str:
    """The first line: what is sought, and among how many candidates."""
    seeds = len(plan.seeds)
    rate = plan.section.rate_rps
    traffic = "" if rate is None else f" at {number(rate)} requests/s"
    return (
        f"{plan.plan.base.scenario.name}: the cheapest deployments that meet the SLO for"
        f" {percent(plan.section.min_slo_attainment)} % of requests{traffic}:"
        f" {len(plan.candidates):,} candidates, {seeds} seed{'' if seeds == 1 else 's'} each"
    )


def deployments_table(plan: CapacityPlan, shown: Sequence[Deployment]) -> Table:
    """The cheapest deployments, the best first."""
    keys = tried_keys(plan)
    names = short_names(keys)
    degrees = [name for name in ("tp", "dp", "moe_ep") if _varies(plan, name)]
    is_priced = plan.candidates[0].price_per_hour is not None
    headings = [metric(name).table_heading_with_unit for name in _SHOWN_METRICS]
    columns = [
        *columns_of(["GPU"]),
        *columns_of(numbers=[*degrees, "replicas", "GPUs", *(["per hour"] if is_priced else [])]),
        *columns_of(["server"]),
        *columns_of(numbers=[*(names[key] for key in keys), "headroom %", *headings]),
    ]
    rows = [
        [
            one.candidate.gpu,
            *(str(one.candidate.degrees.get(name, 1)) for name in degrees),
            str(one.replicas),
            str(one.num_gpus),
            *([number(one.cost)] if is_priced else []),
            one.candidate.family,
            *(json_text(one.candidate.tried[key]) if key in one.candidate.tried else UNDEFINED
              for key in keys),
            headroom_text(one),
            *(interval_text(one.interval(name).scaled(metric(name).table_factor))
              for name in _SHOWN_METRICS),
        ]
        for one in shown
    ]  # fmt: skip
    return Table(columns, rows)


def headroom_text(deployment: Deployment) -> str:
    """How much more rate it bears, in percent."""
    if deployment.headroom is None:
        return UNDEFINED
    return f"{'≥ ' if deployment.is_headroom_open else ''}{percent(deployment.headroom)}"


def certainty_lines(plan: CapacityPlan, shown: Sequence[Deployment]) -> list[str]:
    """How sure it is that the first one meets the SLO, and one replica fewer does not."""
    best, least = shown[0], plan.section.min_slo_attainment
    size = f"{_counted(best.replicas, 'replica')}, {_counted(best.num_gpus, 'GPU')}"
    lines = [f"The first ({size}): {attainment_in_words(best.interval(ATTAINMENT), least)}"]
    sure = next((one for one in shown if _is_sure(one, least)), best)
    if sure is not best:
        what = f"{in_words(sure.candidate)} ({_price(sure)})"
        lines.append(f"The cheapest whose interval does not: {what}.")
    if best.fewer is not None:
        share = interval_text(best.fewer.interval(ATTAINMENT).scaled(100))
        lines.append(f"One replica fewer: SLO attainment {share} %.")
    scenario = plan.plan.vary(best.candidate.settings).scenario
    kind = scenario.latency.kind
    sources = [] if best.judged is None else best.judged.by_seed("latency_source")
    source = f" ({sources[0]})" if any(sources) else ""
    lines.append(f"Step times, kind {kind}: {_JUDGED_BY[kind]}{source}.")
    left = [] if best.judged is None else [one for one in best.judged.by_seed("left_range") if one]
    if left:
        lines.append(f"Warning: {left[0]}")
    return lines


def _is_sure(one: Deployment, least: float) -> bool:
    interval = one.interval(ATTAINMENT)
    return interval.half_width is not None and interval.ends[0] >= least


def other_lines(plan: CapacityPlan, deployments: Sequence[Deployment]) -> Iterator[str]:
    """The candidates that are not in the table, grouped by what was found out about them."""
    headings = {
        Verdict.DEARER: "cost more than those above",
        Verdict.MISSES: "miss the SLO with any number of replicas",
        Verdict.CANNOT_RUN: "cannot run",
        Verdict.FAILED: "failed",
    }
    shown = plan.section.num_shown
    dearer = [one for one in deployments[shown:] if one.verdict is Verdict.MEETS]
    for verdict, heading in headings.items():
        group = [one for one in deployments if one.verdict is verdict]
        group = [*dearer, *group] if verdict is Verdict.DEARER else group
        if not group:
            continue
        yield f"{len(group):,} {heading}:"
        for one in group[:_MAX_LISTED]:
            yield f"  {in_words(one.candidate)}: {_found(one)}"
        if len(group) > _MAX_LISTED:
            yield f"  {len(group) - _MAX_LISTED:,} more in results.csv"


def _found(one: Deployment) -> str:
    match one.verdict:
        case Verdict.MEETS:
            return _price(one)
        case Verdict.DEARER:
            return f"{_price(one)} or more"
        case Verdict.MISSES:
            share = interval_text(one.interval(ATTAINMENT).scaled(100))
            return f"{share} % with {one.replicas} replicas"
        case _:
            return one.reason or ""


def _price(one: Deployment) -> str:
    gpus = _counted(one.num_gpus, "GPU")
    return gpus if one.candidate.price_per_hour is None else f"{number(one.cost)} per hour, {gpus}"


def _counted(count: int | None, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _varies(plan: CapacityPlan, name: str) -> bool:
    """Whether any candidate has another degree than 1."""
    return any(one.degrees.get(name, 1) != 1 for one in plan.candidates)

"""What a search for deployments found, as tables and sentences."""

import re
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from sim.confidence.confidence import over_seeds
from sim.confidence.judged import ATTAINMENT
from sim.metrics.points import MeanInterval
from sim.metrics.registry import metric
from sim.report.confidence_text import confidence_lines
from sim.report.figures.key_text import short_names
from sim.report.memory_tables import size_columns, worth_columns
from sim.report.search_tables import attainment_in_words, judged_lines, percent
from sim.report.sweep_tables import interval_text, share_text, value_json
from sim.sweep.capacity.candidates import DEGREES, Size, in_words
from sim.sweep.capacity.deployments import (
    AT_MOST,
    DeploymentVerdict,
    TriedDeployment,
    board_kw,
    tried_keys,
)
from sim.sweep.capacity.plan import CapacityPlan
from sim.sweep.capacity.search import shown_of
from sim.tables.table import UNDEFINED, Table, columns_of, counted, number

_MAX_LISTED = 20
# Reasons that differ in numbers only are given once.
_DIGITS = re.compile(r"[0-9]+")
_SHOWN_LATENCIES = ("p99_ttft_ms", "p99_tpot_ms")


def plan_in_words(plan: CapacityPlan) -> str:
    """The first line: what is sought, and among how many candidates."""
    rate = plan.section.rate_rps
    sought, traffic = "the cheapest deployments", ""
    if plan.is_for_load:
        sought = f"the most traffic that {_counted(plan.section.max_gpus, 'GPU')} bear: deployments"
    elif rate is not None:
        traffic = f" at {number(rate)} requests/s"
    return (
        f"{plan.plan.base.scenario.name}: {sought} that meet the SLO for"
        f" {percent(plan.section.min_slo_attainment)} % of requests{traffic}{_limit(plan)}:"
        f" {len(plan.candidates):,} candidates, {counted(len(plan.seeds), 'seed')} each"
    )


def _limit(plan: CapacityPlan) -> str:
    most = plan.section.max_kw
    return "" if most is None else f" with at most {number(most)} kW"


def deployments_table(plan: CapacityPlan, shown: Sequence[TriedDeployment]) -> Table:
    """The best deployments, the best first."""
    keys = tried_keys(plan)
    names = short_names(keys)
    degrees = [name for name in DEGREES if _varies(plan, name)]
    is_priced = plan.candidates[0].price_per_hour is not None
    has_disaggregated = plan.section.disaggregated is not None
    per_gpu = ["goodput/s per GPU"] if has_disaggregated else []
    power = ["kW"] if plan.section.max_kw is not None else []
    bears = plan.amount(1.0)[1] if plan.is_for_load else "headroom %"
    headings = [metric(name).table_heading_with_unit for name in (ATTAINMENT, *_SHOWN_LATENCIES)]
    sizes, worth = size_columns(plan), worth_columns(plan)
    columns = [
        *columns_of(["GPU"]),
        *columns_of(numbers=[*degrees, "replicas", "GPUs", *(column.heading for column in sizes),
                             *(["per hour"] if is_priced else [])]),
        *columns_of(["server"]),
        *columns_of(numbers=[*(names[key] for key in keys), bears, *per_gpu, *power, *headings,
                             *(column.heading for column in worth)]),
    ]  # fmt: skip
    rows = [
        [
            one.candidate.gpu,
            *(_of_both(one, name) for name in degrees),
            " + ".join(map(str, one.size or ())),
            str(one.num_gpus),
            *(column.cell(one) for column in sizes),
            *([number(one.cost)] if is_priced else []),
            one.candidate.family,
            *(value_json(one.candidate.tried[key]) if key in one.candidate.tried else UNDEFINED
              for key in keys),
            load_text(plan, one) if plan.is_for_load else headroom_text(one),
            *([number(one.goodput_per_gpu)] if has_disaggregated else []),
            *([number(one.power_kw)] if power else []),
            share_text(one.interval(ATTAINMENT)),
            *(interval_text(one.interval(name)) for name in _SHOWN_LATENCIES),
            *(column.cell(one) for column in worth),
        ]
        for one in shown
    ]  # fmt: skip
    return Table(columns, rows)


def load_text(plan: CapacityPlan, deployment: TriedDeployment) -> str:
    """The load under which it was judged, without the unit."""
    amount, _ = plan.amount(deployment.load)
    return number(amount)


def headroom_text(deployment: TriedDeployment) -> str:
    """How much more rate it bears, in percent."""
    if deployment.headroom is None:
        return UNDEFINED
    return f"{'≥ ' if deployment.is_headroom_open else ''}{percent(deployment.headroom)}"


def certainty_lines(plan: CapacityPlan, shown: Sequence[TriedDeployment]) -> list[str]:
    """How sure it is that the first one meets the SLO, and that less, or more load, does not."""
    best, least = shown[0], plan.section.min_slo_attainment
    size = f"{_size_text(best, best.size)}, {_counted(best.num_gpus, 'GPU')}"
    if plan.is_for_load:
        size += f", {_amount(plan, best.load)}"
    lines = [f"The first ({size}): {attainment_in_words(best.interval(ATTAINMENT), least)}"]
    sure = next((one for one in shown if _is_sure(one, least)), best)
    if sure is not best:
        what = f"{in_words(sure.candidate)} ({_found(plan, sure)})"
        lines.append(f"The first whose interval does not reach below: {what}.")
    for fewer, judged in best.fewer:
        share = share_text(judged.interval(ATTAINMENT))
        what = "One replica fewer"
        if best.candidate.decoders is not None:
            what = _size_text(best, fewer)
        lines.append(f"{what}: SLO attainment {share} %.")
    if best.more is not None:
        load, judged = best.more
        share = share_text(judged.interval(ATTAINMENT))
        power = f", {number(judged.power_kw)} kW" if judged.exceeds(plan.section) else ""
        lines.append(f"With {_amount(plan, load)}: SLO attainment {share} %{power}.")
    lines += _disaggregated_lines(plan, shown)
    lines += _power_lines(plan, shown)
    if best.judged is not None:
        judged_by = plan.section.judged_by
        shares = best.judged.attainments(judged_by)
        is_as_simulated = best.judged.is_as_simulated(judged_by)
        mean = None if is_as_simulated else fmean(each or 0.0 for each in shares)
        lines += judged_lines(judged_by, mean, is_met=True)
        lines += confidence_lines(over_seeds(best.judged.by_seed("confidence")))
    left = [] if best.judged is None else [one for one in best.judged.by_seed("left_range") if one]
    if left:
        lines.append(f"Warning: {left[0]}")
    return lines


def _power_lines(plan: CapacityPlan, shown: Sequence[TriedDeployment]) -> Iterator[str]:
    """Of which deployments nobody measured the power, if there is a limit, and their boards'."""
    unknown = []
    for row, one in enumerate(shown, start=1):
        most_kw = board_kw(plan, one)
        most = "" if most_kw is None else f" (boards: at most {number(most_kw)} kW)"
        if one.power_kw is None:
            unknown.append(f"row {row}{most}")
    if unknown and plan.section.max_kw is not None:
        yield f"Power not measured: {', '.join(unknown)}."


def _size_text(one: TriedDeployment, size: Size | None) -> str:
    if one.candidate.decoders is None or size is None:
        return _counted(one.replicas, "replica")
    return f"{_counted(size[0], 'prefill server')} and {_counted(size[1], 'decode server')}"


def _of_both(one: TriedDeployment, name: str) -> str:
    """A degree: of each replica, or of the prefill and the decode servers."""
    both = [one.candidate.degrees]
    if one.candidate.decoders is not None:
        both.append(one.candidate.decoders.degrees)
    return " + ".join(str(degrees.get(name, 1)) for degrees in both)


def _disaggregated_lines(plan: CapacityPlan, shown: Sequence[TriedDeployment]) -> Iterator[str]:
    """One line that compares the cheapest deployments with and without disaggregated servers."""
    if plan.section.disaggregated is None or plan.is_for_load:
        return
    together = next((one for one in shown if one.candidate.decoders is None), None)
    split = next((one for one in shown if one.candidate.decoders is not None), None)
    if together is None or split is None or not together.cost or split.cost is None:
        which = "disaggregated servers" if together is None else "servers that do both"
        yield f"Only {which} meet the SLO."
        return
    change = 100 * (split.cost / together.cost - 1)
    words = "as much"
    if change:
        words = f"{number(abs(change))} % {'more' if change > 0 else 'less'}"
    ours, theirs = _price(split), _price(together)
    yield f"Disaggregated servers cost {words}: {ours}, against {theirs} together."


def _is_sure(one: TriedDeployment, least: float) -> bool:
    interval = one.interval(ATTAINMENT)
    return interval.half_width is not None and interval.ends[0] >= least


def other_lines(plan: CapacityPlan, deployments: Sequence[TriedDeployment]) -> Iterator[str]:
    """The candidates that are not in the table, grouped by what was found out about them."""
    headings = {
        DeploymentVerdict.DEARER: "cost no less than those above",
        DeploymentVerdict.WEAKER: "bear no more than those above",
        DeploymentVerdict.MISSES: (
            "miss the SLO under any load"
            if plan.is_for_load
            else "miss the SLO with any number of replicas"
        ),
        DeploymentVerdict.TOO_MUCH_POWER: f"draw more than {number(plan.section.max_kw)} kW",
        DeploymentVerdict.CANNOT_RUN: "cannot run",
        DeploymentVerdict.FAILED: "failed",
    }
    meeting = [one for one in deployments if one.verdict is DeploymentVerdict.MEETS]
    shown = shown_of(plan, meeting)
    rest = [one for one in meeting if one not in shown]
    worse = DeploymentVerdict.WEAKER if plan.is_for_load else DeploymentVerdict.DEARER
    for verdict, heading in headings.items():
        group = [one for one in deployments if one.verdict is verdict]
        group = [*rest, *group] if verdict is worse else group
        left = [one for one in group if verdict is worse and not one.is_simulated]
        if left:
            yield _left_line(plan, left)
        group = [one for one in group if one not in left]
        if not group:
            continue
        yield f"{len(group):,} {heading}:"
        alike: dict[str, list[TriedDeployment]] = {}
        for one in group:
            key = _DIGITS.sub("", one.reason) if one.reason else str(one.candidate.number)
            alike.setdefault(key, []).append(one)
        for first, *others in list(alike.values())[:_MAX_LISTED]:
            more = f" (and {len(others):,} more)" if others else ""
            yield f"  {in_words(first.candidate)}{more}: {_found(plan, first)}"
        if len(alike) > _MAX_LISTED:
            yield f"  {len(alike) - _MAX_LISTED:,} more in results.csv"


def _left_line(plan: CapacityPlan, left: Sequence[TriedDeployment]) -> str:
    """The candidates that were not simulated, and what the best of them may do."""
    best = min(left, key=TriedDeployment.rank)
    what = "bear less" if plan.is_for_load else "cost more"
    return (
        f"{len(left):,} not simulated, because by step times they {what}; the best:"
        f" {in_words(best.candidate)}: {_found(plan, best)}"
    )


def _found(plan: CapacityPlan, one: TriedDeployment) -> str:
    match one.verdict:
        case DeploymentVerdict.MEETS:
            return _amount(plan, one.load) if plan.is_for_load else _price(one)
        case DeploymentVerdict.WEAKER:
            return f"{_amount(plan, one.load)} or less"
        case DeploymentVerdict.DEARER:
            return f"{_price(one)} or more"
        case DeploymentVerdict.MISSES:
            return _miss(plan, one)
        case DeploymentVerdict.TOO_MUCH_POWER:
            return f"{number(one.power_kw)} kW with {_size_text(one, one.size)}"
        case _:
            return one.reason or ""


def _miss(plan: CapacityPlan, one: TriedDeployment) -> str:
    if one.judged is None:
        return f"takes at least {_size_text(one, one.size)}"
    if one.judged.num_rejected:
        return f"rejects {_counted(one.judged.num_rejected, 'request')}"
    load = f" at {_amount(plan, one.load)}" if plan.is_for_load else ""
    where = f"with {_size_text(one, one.size)}{load}"
    if one.judged.is_whole:
        return f"{share_text(one.interval(ATTAINMENT))} % {where}"
    most = f"at most {percent(one.judged.most_attainment)} % can"
    ended, kept, rejected = (
        sum(run[key] for run in one.judged.stopped)
        for key in ("num_ended", "num_kept", "num_rejected")
    )
    if not ended:
        return f"{most} {where}"
    count, what = (rejected, "were rejected") if rejected else (kept, "kept it")
    return f"{where} {count:,} of the first {ended:,} requests {what}; stopped, as {most}"


def _price(one: TriedDeployment) -> str:
    gpus = _counted(one.num_gpus, "GPU")
    return gpus if one.candidate.price_per_hour is None else f"{number(one.cost)} per hour, {gpus}"


def _amount(plan: CapacityPlan, load: float) -> str:
    amount, unit = plan.amount(load)
    return f"{number(amount)} {unit}"


def _counted(count: int | None, what: str) -> str:
    """Counted things, of a deployment whose size is known."""
    return counted(count or 0, what)


def _varies(plan: CapacityPlan, name: str) -> bool:
    """Whether any candidate has another degree than 1."""
    return any(one.degrees.get(name, 1) != 1 for one in plan.candidates)


MAX_FRONT = 10
_NUMBERS = ("tokens_per_user", "tokens_per_gpu")
_HEADINGS = ("tokens/s for each user", "tokens/s of each GPU")


def front_rows(loads: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The loads on the front, the most tokens/s for each user first."""
    front = [row for row in loads if row["on_front"]]
    return sorted(front, key=lambda row: -(row["tokens_per_user"] or 0.0))


def short_deployments(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """By the deployments of these rows, each without the words that all of them have."""
    common = _common(rows)
    return {
        row["deployment"]: ", ".join(
            word for word in row["deployment"].split(", ") if word not in common
        )
        for row in rows
    }


def _common(rows: Sequence[dict[str, Any]]) -> dict[str, None]:
    """The words that all deployments have, in their order; none if there is only one."""
    names = list(dict.fromkeys(row["deployment"] for row in rows))
    if len(names) < 2:
        return {}
    others = [set(name.split(", ")) for name in names[1:]]
    words = names[0].split(", ")
    return dict.fromkeys(word for word in words if all(word in each for each in others))


def front_lines(loads: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The line above the table; none if there is no front."""
    num_front = len(front_rows(loads))
    if not num_front:
        return
    common = ", ".join(_common(_spread(front_rows(loads))))
    more = f"; {num_front - MAX_FRONT:,} more in front.csv" if num_front > MAX_FRONT else ""
    num_stopped = sum(row.get(AT_MOST) is not None for row in loads)
    stopped = f" ({num_stopped:,} stopped, as they miss the SLO)" if num_stopped else ""
    yield (
        "Not beaten on tokens/s for each user (1 / mean TPOT) and of each GPU, of"
        f" {len(loads):,} deployments and loads tried{stopped}{more}"
        f"{common and f'; all {common}'}:"
    )


def loads_table(loads: Sequence[dict[str, Any]]) -> Table:
    """The front, spread over at most `MAX_FRONT` rows."""
    rows = _spread(front_rows(loads))
    names = short_deployments(rows)
    has_interval = [any(row[f"{name}_low"] is not None for row in rows) for name in _NUMBERS]
    unit = rows[0]["load_unit"] if rows else ""
    headings = [
        heading
        for text, shown in zip(_HEADINGS, has_interval, strict=True)
        for heading in (text, *(["90 % interval"] if shown else []))
    ]
    cells = [
        [
            names[row["deployment"]],
            row["servers"],
            str(row["num_gpus"]),
            number(row["load"]),
            *(
                text
                for name, shown in zip(_NUMBERS, has_interval, strict=True)
                for text in (_mean(row, name), *([_ends(row, name)] if shown else []))
            ),
            percent(row["slo_attainment"]),
            str(row["num_seeds"]),
        ]
        for row in rows
    ]
    columns = [
        *columns_of(["deployment"]),
        *columns_of(numbers=["servers", "GPUs", unit, *headings, "SLO met %", "seeds"]),
    ]
    return Table(columns, cells)


def _spread(rows: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """The rows, or of many those that are evenly spread among them, both ends included."""
    if len(rows) <= MAX_FRONT:
        return rows
    last = len(rows) - 1
    return [rows[round(place * last / (MAX_FRONT - 1))] for place in range(MAX_FRONT)]


def _mean(row: dict[str, Any], name: str) -> str:
    mean, half = row[name], row[f"{name}_half_width"]
    return interval_text(MeanInterval(mean, half, row["num_seeds"]))


def _ends(row: dict[str, Any], name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return "" if low is None else f"{number(low)} to {number(high)}"

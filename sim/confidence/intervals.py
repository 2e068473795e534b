"""Intervals of a summary's means, from the nearest measured servers or its server's own requests.

    errors of the measured servers, each weighted by how near it is to the point
        --> their median, and their mean distance from it (the spread)
        --> interval = median + [low, high] x spread; in between: median + expected x spread

`low` and `high` are such that the intervals hold for 90 % of the measured servers themselves, each
left out in turn (conformal prediction). They depend on what the measured servers lack of the point:
intervals are wider if nobody has measured its model. For those, all servers with a model are left
out in turn, and so on (`LACKS`).

Intervals of a server that was fitted to its own measured requests:

    half width = half width of the requests held out + _PER_DOUBLING x doublings of the load

Half widths are natural logarithms of measured over simulated means. Doublings count from the loads
that were fitted; `docs/explanation/confidence.md` says where `_PER_DOUBLING` is from, and how often
the intervals hold.
"""

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from sim.confidence.measured import (
    METRICS,
    NAMES,
    MeanLoad,
    MeasuredServers,
    ServerPoint,
    measured_servers,
    point_of,
    point_of_pools,
    sizes_of,
)
from sim.core.arrays import Bools, Float64
from sim.core.files import json_digest
from sim.metrics.latencies import Slo
from sim.metrics.summary import attainment_if
from sim.runlog import RunLog
from sim.scenario.fitted_section import FittedSection
from sim.scenario.load import LoadedScenario

FILE, DISAGGREGATED_FILE = "calibration.json", "disaggregated.json"
# What the measured servers lack of a point, and the names that a row must then share with it,
# beside the engine. The first for which there are rows is taken.
LACKS: Mapping[str, tuple[str, ...]] = {
    "nothing": ("model", "gpu", "version"),
    "version": ("model", "gpu"),
    "gpu": ("model",),
    "model": ("architecture",),
    "architecture": (),
}


class Nearness(NamedTuple):
    """How the distance of two servers is computed, a sum over their differences.

    Attributes:
        names: distance that is added if a name differs, for each of NAMES.
        sizes: distance that is added for each doubling of a size, for each of SIZES.
        spread: the spread that is assumed before any server is looked at, as a natural logarithm.
        spread_weight: how many servers at distance 0 that assumption counts as.
    """

    names: Sequence[float]
    sizes: Sequence[float]
    spread: float
    spread_weight: float


class Calibration(NamedTuple):
    """The numbers that were chosen on measured servers.

    Attributes:
        level_pct: percentage of the measured servers that are inside of their intervals.
        nearness: how distances between servers are computed.
        bounds: `low`, `expected` and `high` of each metric, by what is lacking (a key of LACKS). A
            key is left out if too few servers were measured to tell; then there is no interval.
        reach: the distance at which a server is not near any more, by what is lacking.
    """

    level_pct: float
    nearness: Nearness
    bounds: Mapping[str, Sequence[Sequence[float]]]
    reach: Mapping[str, float]


@cache
def calibration(*, disaggregated: bool = False) -> Calibration:
    """The numbers that `python -m silicon.confidence` chose on the development half.

    Those of disaggregated servers are from `python -m silicon.confidence_disaggregated`.
    """
    name = DISAGGREGATED_FILE if disaggregated else FILE
    text = files(__package__).joinpath(name).read_text(encoding="utf-8")
    content = json.loads(text)
    return Calibration(**{**content, "nearness": Nearness(**content["nearness"])})


class Spread(NamedTuple):
    """The errors of the servers that are near, as logarithms; shape of both: [metrics]."""

    median: Float64
    spread: Float64


def distances(servers: MeasuredServers, point: ServerPoint, nearness: Nearness) -> Float64:
    """How far each server is from a point; shape [rows]. A size that is not known adds nothing."""
    names = sum(
        count * ~servers.with_the(point, name)
        for name, count in zip(NAMES, nearness.names, strict=True)
    )
    sizes = np.nan_to_num(np.abs(servers.sizes - sizes_of(point))) @ np.array(nearness.sizes)
    return np.asarray(names + sizes, dtype=np.float64)


def spread_of(
    servers: MeasuredServers, distance: Float64, rows: Bools, nearness: Nearness
) -> Spread:
    """The weighted median error of these rows, and the mean distance of errors from it.

    `distance` is that of each server from the point, `rows` says which of them count; shape [rows].
    `nearness` has the assumed spread.
    """
    weights = np.exp(-distance[rows])
    errors = servers.errors[rows]
    order = np.argsort(errors, axis=0)
    sums = np.cumsum(weights[order], axis=0)
    places = (sums < sums[-1] / 2).sum(axis=0)
    columns = np.arange(len(METRICS))
    median = errors[order[places, columns], columns]
    deviations = (weights[:, None] * np.abs(errors - median)).sum(axis=0)
    prior = nearness.spread_weight
    spread = (deviations + prior * nearness.spread) / (weights.sum() + prior)
    return Spread(median, spread)


def lacking(
    servers: MeasuredServers,
    point: ServerPoint,
    distance: Float64,
    rows: Bools,
    reach: Mapping[str, float],
) -> str | None:
    """What these rows lack of a point, a key of LACKS; None: nothing near it was measured.

    Servers farther from the point than `reach` (by key of LACKS) do not count, for example those
    that were measured with much shorter prompts only. `distance` and `rows` are as in `spread_of`.
    """
    for name, shared in LACKS.items():
        if name not in reach:
            continue
        like_it = servers.with_the(point, "engine", *shared) & rows
        if like_it.any() and distance[like_it].min() <= reach[name]:
            return name
    return None


LEVEL_PCT = 90.0
# Sections whose values belong to the fitted server.
_SETTINGS = ("model", "hardware", "latency", "host", "scheduler", "acceptance", "pools")
_PER_DOUBLING, MOST_DOUBLINGS = 0.09, 2.0
_NAMES = {"ttft": "mean_ttft_ms", "tpot": "mean_tpot_ms"}
# `half_width` needs this many errors: the largest of fewer may be exceeded more often than 1 in 10.
FEWEST = 9


def settings_of(raw: Mapping[str, Any]) -> str:
    """Hash of the sections in `_SETTINGS` of a scenario file, the first 16 hexadecimal digits."""
    return json_digest({name: raw[name] for name in _SETTINGS if name in raw})[:16]


def half_width(errors: list[float]) -> float | None:
    """How far off a further error is at most, in nine of ten cases; None: too few to say.

    Split conformal prediction: of `n` absolute errors, the one at place (n + 1) x 90 %, rounded up.
    """
    place = math.ceil((len(errors) + 1) * LEVEL_PCT / 100)
    return sorted(map(abs, errors))[place - 1] if place <= len(errors) else None


def from_fit(
    section: FittedSection, loaded: LoadedScenario, summary: Mapping[str, Any]
) -> dict[str, Any]:
    """See `sim.confidence.confidence.confidence_of`, of a scenario with a section `fitted`."""
    if section.settings != settings_of(loaded.raw):
        return {"no_interval": "the server's settings are no longer those that were fitted"}
    if section.ttft is None and section.tpot is None:
        runs = "1 run" if section.runs == 1 else f"{section.runs} runs"
        what = f"{runs} fitted, {section.held_out} groups of requests held out"
        return {"no_interval": f"{what}: an interval takes {FEWEST}"}
    load = load_of(summary, summary.get("mean_replicas") or loaded.scenario.replicas)
    away = max(doublings(value, *getattr(section, name)) for name, value in load.items())
    if away > MOST_DOUBLINGS:
        times = f"{2**MOST_DOUBLINGS:.0f}"
        return {"no_interval": f"the load is more than {times} times off all that were fitted"}
    found: dict[str, Any] = {"level_pct": LEVEL_PCT}
    for name, metric in _NAMES.items():
        half, value = getattr(section, name), summary.get(metric)
        if half is not None and value is not None:
            factor = math.exp(widened(half, away))
            found[metric] = {"low": value / factor, "high": value * factor}
    return found


def load_of(summary: Mapping[str, Any], servers: float = 1) -> dict[str, float]:
    """Mean requests in each of a run's servers, and mean tokens of its requests."""
    num = summary["completed"]
    return {
        "concurrency": (summary["concurrency"] or 0.0) / servers,
        "prompt_tokens": summary["total_input_tokens"] / num,
        "output_tokens": summary["total_output_tokens"] / num,
    }


def widened(half: float, away: float) -> float:
    """The half width at a load that is `away` doublings outside of those that were fitted."""
    return half + _PER_DOUBLING * away


def doublings(value: float, least: float, most: float) -> float:
    """How often a value must be doubled or halved to be between `least` and `most`; 0 inside."""
    if not least or not value:
        return 0.0 if least <= value <= most else math.inf
    return max(math.log2(least / value), math.log2(value / most), 0.0)


def attainment_interval(
    log: RunLog, slo: Slo, summary: Mapping[str, Any], confidence: Mapping[str, Any]
) -> dict[str, float]:
    """The share of requests that keep the SLO if latencies are those at the ends of the intervals.

    All requests are taken to be slower by the same factor as the mean. Example: mean TPOT is 20 ms,
    its interval 18 to 25 ms, its limit 30 ms. A request with 26 ms keeps it as simulated and at the
    lower end (23.4 ms), but not at the upper end (32.5 ms).

    Returns:
        `low`: the share at the upper ends of both latencies; `high`: at their lower ends;
        `expected`: at what is expected, if both have it. Empty if the SLO has no limit, or if TTFT
        or TPOT has no interval.
    """
    ttft, tpot = (confidence.get(name) for name in ("mean_ttft_ms", "mean_tpot_ms"))
    if not slo.limits_ms() or ttft is None or tpot is None:
        return {}
    found: dict[str, float] = {}
    for end, name in (("high", "low"), ("expected", "expected"), ("low", "high")):
        if end in ttft and end in tpot:
            factors = ttft[end] / summary["mean_ttft_ms"], tpot[end] / summary["mean_tpot_ms"]
            share = attainment_if(log, slo, *factors)
            if share is not None:
                found[name] = share
    return found


# The metric of the summary that each interval is about.
_METRIC_OF = {"ttft": "mean_ttft_ms", "tpot": "mean_tpot_ms", "throughput": "output_throughput"}
_ENDS = ("low", "expected", "high")
# How many groups of the nearest servers are named.
_NUM_NAMED = 3
_NO_LOAD = MeanLoad(math.nan, math.nan, math.nan)


def from_measured(loaded: LoadedScenario, summary: Mapping[str, Any]) -> dict[str, Any]:
    """See `sim.confidence.confidence.confidence_of`; empty if nothing near was measured."""
    is_disaggregated = bool(loaded.pools)
    replicas = 1 if is_disaggregated else summary.get("mean_replicas") or loaded.scenario.replicas
    point = _point_of(loaded, MeanLoad(**load_of(summary, replicas)))
    if point is None:
        return {}
    servers = measured_servers(disaggregated=is_disaggregated)
    chosen = calibration(disaggregated=is_disaggregated)
    # Of disaggregated servers each engine had one version and one architecture: nobody knows what
    # others change.
    rows = servers.with_the(point, *(["version", "architecture"] if is_disaggregated else []))
    distance = distances(servers, point, chosen.nearness)
    lacks = lacking(servers, point, distance, rows, chosen.reach)
    if lacks is None:
        return {}
    median, spread = spread_of(servers, distance, rows, chosen.nearness)
    bounds = np.array(chosen.bounds[lacks])
    ends = np.exp(median[:, None] + bounds * spread[:, None])
    intervals = {
        _METRIC_OF[name]: dict(zip(_ENDS, (value * factors).tolist(), strict=True))
        for name, factors in zip(METRICS, ends, strict=True)
        if (value := summary.get(_METRIC_OF[name])) is not None
    }
    if lacks != "nothing":
        for interval in intervals.values():
            # Errors of unlike servers do not correct the mean (docs/explanation/accuracy.md).
            del interval["expected"]
    near = _nearest(servers, point, distance, lacks)
    return {**near, "level_pct": chosen.level_pct, **intervals}


def may_be_expected(loaded: LoadedScenario) -> bool:
    """Whether servers with the same engine, version, model and GPU were measured, at some load.

    Only then does `from_measured` say what is expected.
    """
    point = _point_of(loaded, _NO_LOAD)
    if point is None:
        return False
    servers = measured_servers(disaggregated=bool(loaded.pools))
    return bool(servers.with_the(point, "engine", *LACKS["nothing"]).any())


def disaggregated_in_words() -> str:
    """Which disaggregated servers were measured: `DeepSeek-R1 (sglang 0.5.9)`."""
    servers = measured_servers(disaggregated=True)
    engines = zip(servers.names["engine"], servers.names["version"], strict=True)
    models: dict[tuple[str, str], set[str]] = {}
    for engine, (model, _) in zip(engines, servers.served, strict=True):
        models.setdefault(engine, set()).add(model.rpartition("/")[2])
    return ", ".join(
        f"{', '.join(sorted(names))} ({' '.join(engine)})"
        for engine, names in sorted(models.items())
    )


def _point_of(loaded: LoadedScenario, load: MeanLoad) -> ServerPoint | None:
    if not loaded.pools:
        return point_of(loaded.scenario, loaded.base_dir, load)
    pools = [pool.scenario for pool in loaded.pools.values()]
    return point_of_pools(pools, loaded.base_dir, load)


def nearest_to(loaded: LoadedScenario) -> dict[str, Any]:
    """The measured servers that are nearest to a scenario's, whatever their load; else empty."""
    point = _point_of(loaded, _NO_LOAD)
    if point is None or loaded.pools:
        return {}
    servers, chosen = measured_servers(), calibration()
    distance = distances(servers, point, chosen.nearness)
    everywhere = dict.fromkeys(LACKS, math.inf)
    lacks = lacking(servers, point, distance, np.ones(len(servers), np.bool_), everywhere)
    return {} if lacks is None else _nearest(servers, point, distance, lacks)


def _nearest(
    servers: MeasuredServers, point: ServerPoint, distance: Float64, lacks: str
) -> dict[str, Any]:
    """How many measured servers share all but `lacks` with a point, and the nearest of them."""
    like_it = np.flatnonzero(servers.with_the(point, "engine", *LACKS[lacks]))
    groups: dict[object, list[int]] = {}
    for row in like_it[np.argsort(distance[like_it], kind="stable")].tolist():
        groups.setdefault(servers.group(row), []).append(row)
    return {
        "rows": len(like_it),
        "measured": len(servers),
        "lacks": lacks,
        "nearest": [
            {"servers": len(rows), **servers.described(rows[0], point)}
            for rows in list(groups.values())[:_NUM_NAMED]
        ],
    }

"""How far to believe simulations: `python -m silicon.confidence [OUTCOMES] [--choose]`.

Writes to docs/explanation/accuracy.md how often intervals hold for the held-out half: of all
servers, of each class, and with each model, GPU or engine version left out in turn. OUTCOMES is the
file of `make silicon OUT=`; its means are kept in `silicon/data` for the next call. With them the
widths of intervals are chosen anew on the development half, and written to `sim/confidence` with
its servers. --choose also chooses anew how near servers are to each other, which takes minutes.
"""

import argparse
import csv
import gzip
import io
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from silicon.facts import Row
from silicon.kept import judged_half, keep
from silicon.page import ACCURACY, table_of, write_board
from silicon.scenario import scenario_text
from silicon.scores import Judged, quantity_of
from silicon.simulate import kept_outcomes
from sim.confidence import intervals, measured
from sim.confidence.intervals import LACKS, Nearness, distances, lacking, spread_of
from sim.confidence.measured import (
    METRICS,
    NAMES,
    SIZES,
    MeanLoad,
    MeasuredServers,
    ServerPoint,
    point_of,
)
from sim.core.arrays import Bools, Float64
from sim.core.files import json_text, write_text
from sim.scenario.load import load_scenario_text

# What the point of a row depends on, beside its load.
_SERVER = (
    "backend", "version", "model", "system", "precision", "tp", "dp", "moe_tp", "moe_ep", "gemm",
    "moe", "kv_cache",
)  # fmt: skip
LEVEL = 0.9
# The distance of the nearest server that this share of the development half has at most is near.
_NEAR = 0.98
# What is left out in turn: for each server, those with the same names.
_LEFT_OUT: Mapping[str, tuple[str, ...]] = {
    "nothing": (),
    "version": ("engine", "version"),
    "gpu": ("gpu",),
    "model": ("model",),
    "architecture": ("architecture",),
}
# How much the intervals of each count as the numbers are chosen.
_COUNTS = {"nothing": 4.0, "version": 1.0, "gpu": 1.0, "model": 1.0, "architecture": 1.0}
_BEGIN = Nearness((3.0, 0.7, 2.0, 0.7, 0.7), (0.5, 0.3, 0.4, 0.3, 0.4), 0.15, 0.05)
_FACTORS = (0.5, 0.75, 1.35, 2.0)
_ROUNDS = 2
# Points of servers, by the values of _SERVER: both halves have most of them.
_BUILT: dict[tuple[str, ...], ServerPoint] = {}


class Sample(NamedTuple):
    """Measured servers with their points; shape of `errors`: [rows, metrics]."""

    points: Sequence[ServerPoint]
    servers: MeasuredServers


def points_of(rows: Iterable[Row]) -> list[ServerPoint]:
    """The points of measured servers; those of one server are built once in a process."""
    points = []
    for row in rows:
        server = tuple(row[name] for name in _SERVER)
        if server not in _BUILT:
            loaded = load_scenario_text(scenario_text(row), (), name=row.id)
            point = point_of(loaded.scenario, Path(), MeanLoad(0, 0, 0))
            assert point is not None  # noqa: S101 - all have step times of measured operators
            _BUILT[server] = point
        load = MeanLoad(*(float(row[name]) for name in ("isl", "osl", "concurrency")))
        points.append(_BUILT[server]._replace(**load._asdict()))
    return points


def sample_of(simulated: Sequence[Judged]) -> Sample:
    """Measured servers that were simulated, with the errors."""
    return sample_at(points_of(each.row for each in simulated), simulated)


def sample_at(points: Sequence[ServerPoint], simulated: Sequence[Judged]) -> Sample:
    """Measured servers that were simulated, at these points, with the errors."""
    served = [(each.row["model"], each.row["version"]) for each in simulated]
    return Sample(points, MeasuredServers.of(served, points, [_errors(one) for one in simulated]))


@cache
def sample_of_half(name: str) -> Sample:
    """The judged rows of `development` or `held-out`."""
    return sample_of(judged_half(name))


def _errors(one: Judged) -> list[float]:
    return [
        math.log(
            quantity_of(one.row, one.measured, name) / quantity_of(one.row, one.simulated, name)
        )
        for name in ("TTFT", "TPOT", "throughput")
    ]


class Fold(NamedTuple):
    """A server, judged by others.

    Attributes:
        point, errors: the server's; shape of `errors`: [metrics].
        rows: the others that are not left out; shape [rows].
        left_out: a key of `LACKS`.
    """

    point: ServerPoint
    errors: Float64
    rows: Bools
    left_out: str


def folds(judges: MeasuredServers, sample: Sample) -> Iterator[Fold]:
    """Each server of a sample with the rows of `judges` that judge it, for all that is left out.

    No server judges itself, if it is in both.
    """
    for row, point in enumerate(sample.points):
        for left_out, names in _LEFT_OUT.items():
            rows = np.ones(len(judges), np.bool_)
            if names:
                rows &= ~judges.with_the(point, *names)
            if sample.servers is judges:
                rows[row] = False
            yield Fold(point, sample.servers.errors[row], rows, left_out)


class Placed(NamedTuple):
    """A fold with what the nearest servers say: their errors, and what they lack of it."""

    fold: Fold
    lacks: str | None
    nearest: float
    median: Float64
    spread: Float64

    @property
    def shares(self) -> Float64:
        """How far the fold's errors are from the median, in spreads; shape [metrics]."""
        return np.asarray((self.fold.errors - self.median) / self.spread, np.float64)


def placed(
    servers: MeasuredServers,
    all_folds: Sequence[Fold],
    nearness: Nearness,
    reach: Mapping[str, float],
) -> list[Placed]:
    """What the servers say of each fold."""
    found, distance, before = [], np.zeros(0), None
    for fold in all_folds:
        if fold.point != before:
            distance, before = distances(servers, fold.point, nearness), fold.point
        if not fold.rows.any():
            continue
        lacks = lacking(servers, fold.point, distance, fold.rows, reach)
        spread = spread_of(servers, distance, fold.rows, nearness)
        found.append(Placed(fold, lacks, float(distance[fold.rows].min()), *spread))
    return found


_EVERYWHERE = dict.fromkeys(LACKS, math.inf)


_BOUNDS = ((1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2)


def bounds_of(
    all_placed: Sequence[Placed], levels: Sequence[float] = _BOUNDS
) -> dict[str, Float64]:
    """What this share of the servers is below, by what is lacking; shape: [metrics, levels].

    By default that is `low`, `expected` and `high`. It is in spreads from the median.
    """
    shares = {
        name: np.array([each.shares for each in all_placed if each.lacks == name]) for name in LACKS
    }
    return {name: np.quantile(each, levels, axis=0).T for name, each in shares.items() if len(each)}


def ends_of(one: Placed, bounds: Mapping[str, Float64]) -> Float64:
    """What `bounds` say of the logarithm of each error; shape [metrics, levels]."""
    in_spreads = bounds[one.lacks or ""]
    return np.asarray(one.median[:, None] + in_spreads * one.spread[:, None], np.float64)


def score(all_placed: Sequence[Placed]) -> float:
    """How good intervals are, less is better: their width, and how far values are outside.

    It is the interval score (Gneiting and Raftery 2007), over all metrics.
    """
    bounds = bounds_of(all_placed)
    total = weight = 0.0
    for one in all_placed:
        ends, errors = ends_of(one, bounds), one.fold.errors
        outside = np.maximum(ends[:, 0] - errors, 0) + np.maximum(errors - ends[:, -1], 0)
        count = _COUNTS[one.fold.left_out]
        total += count * float((ends[:, -1] - ends[:, 0] + 2 / (1 - LEVEL) * outside).sum())
        weight += count
    return total / weight


def choose(sample: Sample) -> Nearness:
    """What differences count, such that intervals of the sample's servers are narrow and hold."""
    # A third of them is enough to tell better numbers from worse ones.
    all_folds = list(folds(sample.servers, sample))[::3]
    numbers = np.array([*_BEGIN.names, *_BEGIN.sizes, _BEGIN.spread, _BEGIN.spread_weight])

    def tried(numbers: Float64) -> float:
        return score(placed(sample.servers, all_folds, _nearness(numbers), _EVERYWHERE))

    best = tried(numbers)
    for _ in range(_ROUNDS):
        for place in range(len(numbers)):
            for factor in _FACTORS:
                changed = numbers.copy()
                changed[place] *= factor
                if (found := tried(changed)) < best:
                    best, numbers = found, changed
            sys.stderr.write(f"{place + 1} of {len(numbers)} numbers: {best:.4f}\n")
    return _nearness(numbers)


def _nearness(numbers: Float64) -> Nearness:
    rounded = [float(f"{number:.3g}") for number in numbers]
    split = len(NAMES), len(NAMES) + len(SIZES)
    return Nearness(tuple(rounded[: split[0]]), tuple(rounded[split[0] : split[1]]), *rounded[-2:])


def calibrated(sample: Sample, nearness: Nearness) -> intervals.Calibration:
    """Reach and bounds: of the servers themselves, each judged by the others."""
    all_folds = list(folds(sample.servers, sample))
    first = placed(sample.servers, all_folds, nearness, _EVERYWHERE)
    nearest = {name: [one.nearest for one in first if one.lacks == name] for name in LACKS}
    reach = {name: float(np.quantile(each, _NEAR)) for name, each in nearest.items() if each}
    within = placed(sample.servers, all_folds, nearness, reach)
    bounds = bounds_of([one for one in within if one.lacks is not None])
    return intervals.Calibration(
        100 * LEVEL,
        nearness,
        {name: each.round(4).tolist() for name, each in bounds.items()},
        {name: round(distance, 4) for name, distance in reach.items()},
    )


def write(
    sample: Sample,
    calibration: intervals.Calibration,
    table_file: str = measured.FILE,
    numbers_file: str = intervals.FILE,
) -> None:
    """Write two files of `sim/confidence`."""
    folder = Path(intervals.__file__).parent
    lines = io.StringIO()
    table = csv.writer(lines, lineterminator="\n")
    table.writerow(["served_model", "served_version", *NAMES, *SIZES, *METRICS])
    rows = zip(sample.servers.served, sample.points, sample.servers.errors.tolist(), strict=True)
    for served, point, errors in sorted(rows, key=lambda row: row[:2]):
        names = [getattr(point, name) for name in NAMES]
        sizes = [f"{getattr(point, name):.6g}" for name in SIZES]
        table.writerow([*served, *names, *sizes, *(f"{error:.5f}" for error in errors)])
    packed = gzip.compress(lines.getvalue().encode(), mtime=0)
    (folder / table_file).write_bytes(packed)
    content = {**calibration._asdict(), "nearness": calibration.nearness._asdict()}
    write_text(folder / numbers_file, json_text(content, indent=1))


class Coverage(NamedTuple):
    """How often intervals hold, by metric, and the median of half their width, in shares.

    `simulated` and `expected` are the median errors of the means that are simulated, and of those
    that are expected.
    """

    num_rows: int
    num_judged: int
    held: Float64
    half_width: Float64
    simulated: Float64
    expected: Float64


def coverage(all_placed: Sequence[Placed], bounds: Mapping[str, Float64]) -> Coverage:
    """Of the servers whose interval is known; the others are counted."""
    known = [one for one in all_placed if one.lacks is not None]
    ends = np.array([ends_of(one, bounds) for one in known]).reshape(-1, len(METRICS), 3)
    errors = np.array([one.fold.errors for one in known]).reshape(-1, len(METRICS))
    held = (errors >= ends[..., 0]) & (errors <= ends[..., 2])
    widths = (np.exp(ends[..., 2]) - np.exp(ends[..., 0])) / 2
    off = [np.abs(np.exp(said - errors) - 1) for said in (np.zeros_like(errors), ends[..., 1])]
    return Coverage(
        len(all_placed),
        len(known),
        held.mean(axis=0),
        np.median(widths, axis=0),
        *(np.median(each, axis=0) for each in off),
    )


def board(judges: MeasuredServers, sample: Sample, calibration: intervals.Calibration) -> str:
    """The table of the page: how often intervals from the `judges` hold for a sample."""
    all_folds = list(folds(judges, sample))
    found = placed(judges, all_folds, calibration.nearness, calibration.reach)
    bounds = {name: np.array(each) for name, each in calibration.bounds.items()}
    groups: dict[tuple[str, str], list[Placed]] = {}
    for one in found:
        left_out = one.fold.left_out
        groups.setdefault((left_out, "all"), []).append(one)
        if left_out == "nothing":
            groups.setdefault(("nothing", one.fold.point.engine), []).append(one)
            name = f"{one.fold.point.engine}, {one.fold.point.architecture}"
            groups.setdefault(("nothing", name), []).append(one)
    order = list(_LEFT_OUT)
    lines: list[list[str]] = []
    off: list[list[str]] = []
    for left_out, name in sorted(
        groups, key=lambda key: (order.index(key[0]), key[1] != "all", key)
    ):
        if all(one.lacks is None for one in groups[left_out, name]):
            continue
        each = coverage(groups[left_out, name], bounds)
        cells = [
            f"{100 * held:.0f}% (±{100 * width:.0f}%)"
            for held, width in zip(each.held, each.half_width, strict=True)
        ]
        words = _WORDS[left_out] if name == "all" else name
        lines.append([words, f"{each.num_judged} of {each.num_rows}", *cells])
        if name == "all":
            errors = [
                f"{100 * simulated:.1f}% / {100 * expected:.1f}%"
                for simulated, expected in zip(each.simulated, each.expected, strict=True)
            ]
            off.append([words, f"{each.num_judged} of {each.num_rows}", *errors])
    header = ("servers", "judged", "mean TTFT", "mean TPOT", "throughput")
    told = (
        "Median errors of simulated means / of the [means to expect](confidence.md), which measured"
        " servers like these correct:"
    )
    return f"{table_of(header, lines)}\n\n{told}\n\n{table_of(header, off)}"


_WORDS = {
    "nothing": "all, as they are",
    "version": "all, each as if nobody had measured its engine's version",
    "gpu": "all, each as if nobody had measured its GPU",
    "model": "all, each as if nobody had measured its model",
    "architecture": "all, each as if nobody had measured its architecture",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m silicon.confidence", description=__doc__)
    parser.add_argument("outcomes", type=Path, nargs="?", help="JSON lines, by make silicon OUT=")
    parser.add_argument("--choose", action="store_true", help="choose what differences count anew")
    arguments = parser.parse_args()
    if arguments.outcomes is not None:
        keep(kept_outcomes(arguments.outcomes))
    if arguments.outcomes is not None or arguments.choose:
        judges = sample_of(judged_half("development"))
        nearness = choose(judges) if arguments.choose else intervals.calibration().nearness
        write(judges, calibrated(judges, nearness))
        intervals.calibration.cache_clear()
        measured.measured_servers.cache_clear()
    servers, chosen = measured.measured_servers(), intervals.calibration()
    table = board(servers, sample_of_half("held-out"), chosen)
    write_board("confidence", table, ACCURACY)


if __name__ == "__main__":
    main()

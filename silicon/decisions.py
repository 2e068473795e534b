"""How good the choices are that simulations make: `python -m silicon.decisions`.

A choice: of the measured servers with the same model, GPU, precision and lengths, which engine,
parallelism and concurrency has the most throughput per GPU within a limit of TPOT? Simulated means
choose, and the package's estimates; measured means say how good that was. Writes the tables of
docs/hardware.md, and those of docs/explanation/accuracy.md by model, from `silicon/data`.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from silicon import accuracy
from silicon.bounded import BoundedRow, bounded_rows
from silicon.facts import Row
from silicon.page import ACCURACY, table_of, write_board
from silicon.scores import Means, quantity_of
from sim.confidence.measured import METRICS
from sim.core.errors import InputError

LIMITS_MS = (15.0, 25.0, 50.0, 100.0)
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9)
# A server with 5 % less throughput is as good, and one with 5 % more TPOT is within the limit.
_TOLERANCE = 0.05
_SAME = ("model", "system", "precision", "isl", "osl")
_DIFFERENT = ("backend", "tp", "dp", "moe_tp", "moe_ep", "concurrency")


class Alternative(NamedTuple):
    """An engine, its parallelism and a concurrency.

    Attributes:
        row: one of its measurements.
        measured, simulated, package: means over its measurements.
        bounds_ms: by a share, the TPOT that this share of such servers does not exceed.
    """

    row: Row
    num_gpus: int
    measured: Means
    simulated: Means
    package: Means | None
    bounds_ms: Mapping[float, float]

    def per_gpu(self, means: Means) -> float:
        """Output tokens per second and GPU of a server with these means."""
        requests_per_s = 1_000 * quantity_of(self.row, means, "throughput")
        return requests_per_s * float(self.row["osl"]) / self.num_gpus


class Choice(NamedTuple):
    """At least two alternatives, of which at least one was measured to keep the limit."""

    limit_ms: float
    alternatives: Sequence[Alternative]

    @property
    def is_hard(self) -> bool:
        """Whether some alternative exceeds the limit."""
        return any(one.measured.tpot_ms > self.limit_ms for one in self.alternatives)

    @property
    def row(self) -> Row:
        """The row of an alternative: the model and so on are those of all."""
        return self.alternatives[0].row


def alternatives_of(rows: Iterable[BoundedRow]) -> list[Alternative]:
    """What the rows measured, once each: several runs and versions of an engine are one."""
    groups: dict[tuple[str, ...], list[BoundedRow]] = {}
    for one in rows:
        key = tuple(one.judged.row[name] for name in (*_SAME, *_DIFFERENT))
        groups.setdefault(key, []).append(one)
    return [_alternative(group) for group in groups.values()]


def _alternative(group: Sequence[BoundedRow]) -> Alternative:
    points = [one.judged for one in group]
    estimated = [one.package for one in points if one.package is not None]
    bounds = [
        one.judged.simulated.tpot_ms * one.factors[METRICS.index("tpot")]
        for one in group
        if one.factors is not None
    ]
    return Alternative(
        points[0].row,
        group[0].point.num_gpus,
        _mean([one.measured for one in points]),
        _mean([one.simulated for one in points]),
        _mean(estimated) if estimated else None,
        dict(zip(LEVELS, np.mean(bounds, axis=0).tolist(), strict=True)) if bounds else {},
    )


def _mean(means: Sequence[Means]) -> Means:
    return Means(*np.mean(means, axis=0).tolist())


def choices_of(alternatives: Iterable[Alternative]) -> Iterator[Choice]:
    """The choices that these alternatives allow."""
    groups: dict[tuple[str, ...], list[Alternative]] = {}
    for one in alternatives:
        groups.setdefault(tuple(one.row[name] for name in _SAME), []).append(one)
    for group in groups.values():
        for limit_ms in LIMITS_MS:
            choice = Choice(limit_ms, group)
            if len(group) > 1 and any(one.measured.tpot_ms <= limit_ms for one in group):
                yield choice


# A way of choosing: the TPOT in ms that it compares with the limit, and the means whose throughput
# it compares; None where it knows nothing of an alternative.
Way = Callable[[Alternative], tuple[float, Means] | None]


def by_measurement(one: Alternative) -> tuple[float, Means] | None:
    """The best choice."""
    return one.measured.tpot_ms, one.measured


def by_simulation(one: Alternative) -> tuple[float, Means] | None:
    """As the simulated means say."""
    return one.simulated.tpot_ms, one.simulated


def by_package(one: Alternative) -> tuple[float, Means] | None:
    """As the package estimates."""
    return None if one.package is None else (one.package.tpot_ms, one.package)


def with_margin(level: float) -> Way:
    """Only of what keeps the limit in this share of such servers."""

    def way(one: Alternative) -> tuple[float, Means] | None:
        bound_ms = one.bounds_ms.get(level)
        return None if bound_ms is None else (bound_ms, one.simulated)

    return way


def chosen_by(way: Way, choice: Choice) -> Alternative | None:
    """What has the most throughput per GPU of all that keeps the limit, as `way` sees it."""
    best, most = None, 0.0
    for one in choice.alternatives:
        if (seen := way(one)) is None:
            continue
        tpot_ms, means = seen
        if tpot_ms <= choice.limit_ms and (found := one.per_gpu(means)) > most:
            best, most = one, found
    return best


class Result(NamedTuple):
    """What came of a choice.

    Attributes:
        is_none: nothing seemed to keep the limit.
        is_best: there is none with more measured throughput per GPU within the limit.
        is_missed: its measured TPOT exceeds the limit by more than 5 %.
        regret: how much less measured throughput per GPU it has than the best one, as a share; 1
            if nothing was chosen.
    """

    is_none: bool = True
    is_best: bool = False
    is_missed: bool = False
    regret: float = 1.0


def result_of(choice: Choice, way: Way) -> Result:
    """What comes of a choice that is made in this way."""
    chosen, best = chosen_by(way, choice), chosen_by(by_measurement, choice)
    assert best is not None  # noqa: S101 - some alternative keeps the limit
    if chosen is None:
        return Result()
    is_missed = chosen.measured.tpot_ms > choice.limit_ms * (1 + _TOLERANCE)
    share = chosen.per_gpu(chosen.measured) / best.per_gpu(best.measured)
    return Result(False, chosen is best, is_missed, max(0.0, 1 - share))


class Tally(NamedTuple):
    """Results of many choices, as shares of all; regrets are of those that missed no limit."""

    best: float
    good: float
    missed: float
    none: float
    mean_regret: float
    p90_regret: float


def tally(choices: Sequence[Choice], way: Way) -> Tally:
    """How good choices are that are made in this way."""
    results = [result_of(choice, way) for choice in choices]
    kept = np.array([one.regret for one in results if not one.is_missed])
    return Tally(
        float(np.mean([one.is_best for one in results])),
        float((kept <= _TOLERANCE).sum() / len(results)),
        float(np.mean([one.is_missed for one in results])),
        float(np.mean([one.is_none for one in results])),
        float(kept.mean()),
        float(np.quantile(kept, 0.9)),
    )


# Groups of fewer choices say little.
_LEAST_CHOICES = 20
_COLUMNS = ("best", "within 5%", "limit missed", "none found", "regret")


def board(rows: Sequence[BoundedRow], as_if_new: Sequence[BoundedRow]) -> str:
    """The tables of the page; `as_if_new` are the rows as if nobody had measured their model."""
    held_out = {one.judged.row.id for one in rows if one.judged.row["split"] == "held-out"}
    half, new = ([o for o in said if o.judged.row.id in held_out] for said in (rows, as_if_new))
    ways = {"simulated means": by_simulation, "package": by_package}
    margins = {f"{level:.0%} of such servers": with_margin(level) for level in LEVELS}
    margins = {"simulated mean": by_simulation} | margins
    named = {"held-out half": half, "both halves": rows}
    who = [line for name, said in named.items() for line in _lines(name, said, ways, hard=True)]
    named["held-out half, as if its models were new"] = new
    margin = [line for name, said in named.items() for line in _lines(name, said, margins)]
    return "\n\n".join(
        (
            table_of(("rows", "choices", "chosen by", *_COLUMNS), who),
            table_of(("rows", "choices", "what must be within the limit", *_COLUMNS), margin),
            table_of(
                ("held-out half", "choices", *(f"{way}: {_FEW}" for way in ways)),
                _grouped_lines(half, ways.values()),
            ),
        )
    )


_FEW = "within 5%, limit missed, regret"


def _lines(
    name: str, rows: Sequence[BoundedRow], ways: Mapping[str, Way], *, hard: bool = False
) -> Iterator[list[str]]:
    """A line for each way; with `hard`, also of the choices that can miss the limit."""
    choices = list(choices_of(alternatives_of(rows)))
    parts = {name: choices}
    if hard:
        parts[f"{name}, where some exceed the limit"] = [one for one in choices if one.is_hard]
    for words, part in parts.items():
        for way_name, way in ways.items():
            found = tally(part, way)
            shares = [f"{share:.1%}" for share in found[:4]]
            yield [words, f"{len(part)}", way_name, *shares, _regret(found)]


def _grouped_lines(rows: Sequence[BoundedRow], ways: Iterable[Way]) -> Iterator[list[str]]:
    """A line for each engine, whose servers alone are the alternatives, and each kind of choice."""
    groups: dict[str, list[Choice]] = {}
    for engine in ("sglang", "vllm"):
        own = [one for one in rows if one.judged.row["backend"] == engine]
        groups[f"{engine} alone"] = list(choices_of(alternatives_of(own)))
    kinds: Sequence[tuple[str, Callable[[Choice], Any]]] = (
        ("{}", lambda choice: choice.row["arch_class"]),
        ("{}", lambda choice: choice.row["system"]),
        ("TPOT of at most {:.0f} ms", lambda choice: choice.limit_ms),
    )
    choices = list(choices_of(alternatives_of(rows)))
    for words, kind in kinds:
        for choice in sorted(choices, key=kind):
            groups.setdefault(words.format(kind(choice)), []).append(choice)
    for name, group in groups.items():
        if len(group) >= _LEAST_CHOICES:
            tallies = [tally(group, way) for way in ways]
            cells = [f"{one.good:.0%}, {one.missed:.0%}, {_regret(one)}" for one in tallies]
            yield [name, f"{len(group)}", *cells]


def _regret(found: Tally) -> str:
    return f"{found.mean_regret:.1%} / {found.p90_regret:.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m silicon.decisions", description=__doc__)
    parser.parse_args()
    try:
        rows = bounded_rows(LEVELS)
        write_board("decisions", board(rows, bounded_rows(LEVELS, "model")))
        write_board("accuracy", accuracy.board(bounded_rows(accuracy.ENDS)), ACCURACY)
    except InputError as error:
        sys.stderr.write(f"silicon: {error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()

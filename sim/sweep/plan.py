"""Expands a scenario's `sweep` section into points, and checks them all."""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import cast

import numpy as np

from sim.core.errors import InputError, KeyPath, say, shorten
from sim.scenario.load import LoadedScenario, hashes_with_seeds, vary
from sim.scenario.overrides import Change
from sim.scenario.schema import BESIDE_THE_RUN
from sim.scenario.search_sections import (
    ChoiceDraw,
    Draw,
    IntDraw,
    LogUniformDraw,
    RandomSection,
    SweepSection,
    UniformDraw,
)
from sim.scenario.strict_yaml import YamlValue
from sim.workload.rng import RandomStreams

Settings = Mapping[str, YamlValue]

MAX_POINTS = 10**5
# The first `_FEW_POINTS` points are checked, and the time that this took gives an estimate for the
# others. The estimate is shown if it is at least `_LONG_S` seconds.
_FEW_POINTS, _LONG_S = 1000, 10
SEED = "seed"
_NOT_SWEPT = (*BESIDE_THE_RUN, SEED)


@dataclass(frozen=True, slots=True)
class Point:
    """One run of a sweep.

    Points are numbered from 0, in the order of the plan. Settings are values by key path, the seed
    last, if seeds are swept; the hash is that of the scenario with them. `least_attainment` is as
    in `sim.workers.executor.PointWork`.
    """

    number: int
    settings: Settings
    content_hash: str
    least_attainment: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """All points of a sweep, in order. Two points may be equal, since draws may repeat.

    Listed points vary slowest, then random draws, then grid keys as written, then seeds. So `seed`
    is the last of the swept keys. `section` is the one that lists the points: `sweep` or `tune`.
    """

    base: LoadedScenario
    keys: tuple[str, ...]
    points: tuple[Point, ...]
    section: str = "sweep"

    def vary(self, settings: Settings) -> LoadedScenario:
        """The scenario with these values, without the sections that do not change the run."""
        return vary(self.base, _changes(self.base, settings, self.section))

    def with_seeds(self, settings: Settings, seeds: Sequence[int]) -> tuple[Point, ...]:
        """The points of a setting, one for each seed."""
        first = self.vary({**settings, SEED: seeds[0]})
        hashed = None if first.pools else hashes_with_seeds(first)
        with_seeds = [{**settings, SEED: seed} for seed in seeds]
        return tuple(
            Point(number, values, hashed(seed) if hashed else self.vary(values).content_hash)
            for number, (seed, values) in enumerate(zip(seeds, with_seeds, strict=True))
        )

    def values(self, settings: Settings) -> Settings:
        """The values of all keys and of the seed, from `settings` or else from the scenario."""
        varied = self.vary(settings)
        dump = varied.scenario.model_dump(mode="json")
        # What a pool does not say itself, it has from the keys that all pools share.
        pools = {name: pool.scenario.model_dump(mode="json") for name, pool in varied.pools.items()}

        def value(key: str) -> YamlValue:
            top, name, rest = (*key.split(".", 2), "", "")[:3]
            if top == "pools" and rest and name in pools:
                return value_at(pools[name], rest)
            return value_at(dump, key)

        return {key: value(key) for key in (*self.keys, SEED)} | dict(settings)


def plan_sweep(loaded: LoadedScenario) -> Plan:
    """Expand the scenario's sweep and validate every point.

    Raises:
        InputError: no sweep, a key swept twice, too many points, or a point that is no valid
            scenario: the line names the file, the line, the key path and the point.
    """
    section = loaded.scenario.sweep
    if section is None:
        raise loaded.error((), "has no sweep section")
    axes = _axes(loaded, section)
    num_points = prod(map(len, axes))
    if num_points > MAX_POINTS:
        raise loaded.error(("sweep",), f"has {num_points:,} points, above {MAX_POINTS:,}")
    settings = [{k: v for part in parts for k, v in part.items()} for parts in product(*axes)]
    keys = tuple(dict.fromkeys(key for axis in axes for part in axis for key in part))
    return Plan(loaded, keys, tuple(_checked_points(loaded, settings)))


def seeds_of(loaded: LoadedScenario, section: str, seeds: Sequence[int] | None) -> tuple[int, ...]:
    """The seeds with which every setting of a search is run: those of its section, or one."""
    found = tuple(seeds or (loaded.scenario.seed,))
    for number, seed in enumerate(found):
        if seed in found[:number]:
            raise loaded.error((section, "seeds", number), f"{seed} is given twice")
    return found


def canonical(value: object) -> str:
    """A value as text in which 1, 1.0 and true are three different things."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def settings_text(settings: Settings) -> str:
    """`scheduler.page_size=16, seed=1`."""
    return ", ".join(f"{key}={canonical(value)}" for key, value in settings.items())


def value_at(data: object, key: str) -> YamlValue:
    """The value at a key path of a scenario as JSON; None where it has no such key."""
    for part in key.split("."):
        if isinstance(data, dict):
            data = data.get(part)
        elif isinstance(data, list) and part.isdigit() and int(part) < len(data):
            data = data[int(part)]
        else:
            return None
    return cast("YamlValue", data)


def _axes(loaded: LoadedScenario, section: SweepSection) -> list[Sequence[Settings]]:
    """The axes whose combinations are run: sequences of partial settings, no key on two axes."""
    axes: list[Sequence[Settings]] = []
    if section.points is not None:
        axes.append(section.points)
    if section.random is not None:
        axes.append(draw_settings(section.random))
    for place, values in _grid(section):
        _refuse_repeats(loaded, place, values)
        axes.append([{str(place[-1]): value} for value in values])
    taken: dict[str, int] = {}
    for number, axis in enumerate(axes):
        for key in dict.fromkeys(key for part in axis for key in part):
            _check_key(loaded, key, number, taken)
    if section.seeds is not None:
        _refuse_repeats(loaded, ("sweep", "seeds"), section.seeds)
        axes.append([{SEED: seed} for seed in section.seeds])
    return axes


def _grid(section: SweepSection) -> Iterator[tuple[KeyPath, Sequence[YamlValue]]]:
    for key, values in (section.grid or {}).items():
        yield ("sweep", "grid", key), values
    for key, values in (section.__pydantic_extra__ or {}).items():
        yield ("sweep", key), values


def _refuse_repeats(loaded: LoadedScenario, place: KeyPath, values: Sequence[YamlValue]) -> None:
    seen = set()
    for index, value in enumerate(values):
        text = canonical(value)
        if text in seen:
            raise loaded.error((*place, index), f"{shorten(text)} is given twice")
        seen.add(text)


def _check_key(loaded: LoadedScenario, key: str, axis: int, taken: dict[str, int]) -> None:
    """Refuse a key that another axis sets too, or that would overwrite an earlier key."""
    place = _written(loaded, key, "sweep")
    if key.partition(".")[0] in _NOT_SWEPT:
        hint = "give the seeds as sweep.seeds" if key == SEED else "cannot be swept"
        raise loaded.error(place, hint)
    for other, its_axis in taken.items():
        inside = f"{key}.".startswith(f"{other}.")
        if f"{other}.".startswith(f"{key}.") and not inside:
            raise loaded.error(place, f"would overwrite {other}: put it before {other}")
        if key == other and its_axis != axis:
            raise loaded.error(place, "is swept twice")
    taken[key] = axis


def _checked_points(loaded: LoadedScenario, settings: Sequence[Settings]) -> Iterator[Point]:
    began_s = time.monotonic()
    last: dict[str, YamlValue] | None = None
    hashed: Callable[[int], str] | None = None
    for number, values in enumerate(settings):
        if number == _FEW_POINTS:
            _say_how_long(len(settings) - number, (time.monotonic() - began_s) / number)
        others = {key: value for key, value in values.items() if key != SEED}
        seed = values.get(SEED)
        if hashed is not None and others == last and isinstance(seed, int):
            # Its seed was checked with the section.
            yield Point(number, values, hashed(seed))
            continue
        try:
            scenario = vary(loaded, _changes(loaded, values, "sweep"))
        except InputError as error:
            where = f"point {number + 1} of {len(settings)}: {settings_text(values)}"
            raise InputError(f"{error} ({where})") from None
        last, hashed = others, None if scenario.pools else hashes_with_seeds(scenario)
        yield Point(number, values, scenario.content_hash)


def _say_how_long(num_left: int, point_s: float) -> None:
    left_s = num_left * point_s
    if left_s >= _LONG_S:
        say(f"servetwin: checks {num_left:,} more points, which takes about {left_s:,.0f} s")


def _changes(loaded: LoadedScenario, settings: Settings, section: str) -> list[Change]:
    return [
        Change(key, value, _label(loaded, key, value, section)) for key, value in settings.items()
    ]


def _label(loaded: LoadedScenario, key: str, value: YamlValue, section: str) -> str:
    locations = loaded.locations
    written = locations.labels[locations.nearest(_written(loaded, key, section))]
    return f"{written}: {section}: {key}={shorten(canonical(value))}"


def _written(loaded: LoadedScenario, key: str, section: str) -> KeyPath:
    """The place in a section of the scenario where this key's values are listed."""
    labels, named = loaded.locations.labels, loaded.locations.named(section, key)
    places: list[KeyPath] = [(section, key), (section, "grid", key), (section, "ranges", key)]
    places += [(section, "random", "draw", key)]
    places += [place for place in named if place[:2] == (section, "list")]
    if section == "plan":
        places += named
        places += [(section, key.rpartition(".")[2])]
    places += [(section, "seeds")] if key == SEED else []
    return next((place for place in places if place in labels), (section,))


def draw_settings(section: RandomSection) -> list[dict[str, YamlValue]]:
    """`num_points` settings, each a mapping of key paths to values.

    A key path's values depend on the seed and its own name alone. So with more points or other
    keys, its first values stay the same.
    """
    streams = RandomStreams(section.seed, "sweep")
    drawers = {key: _drawer(draw, streams.stream(key)) for key, draw in section.draw.items()}
    return [{key: draw() for key, draw in drawers.items()} for _ in range(section.num_points)]


def _drawer(draw: Draw, rng: np.random.Generator) -> Callable[[], YamlValue]:
    match draw:
        case UniformDraw():
            return lambda: float(rng.uniform(draw.min, draw.max))
        case LogUniformDraw():
            return lambda: log_uniform(rng, draw.min, draw.max)
        case IntDraw():
            return lambda: int(rng.integers(draw.min, draw.max, endpoint=True))
        case ChoiceDraw():
            return lambda: draw.values[int(rng.integers(len(draw.values)))]


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """A number from `low` to `high` whose logarithm is uniformly distributed."""
    drawn = math.exp(rng.uniform(math.log(low), math.log(high)))
    # Rounding must not leave the range.
    return min(max(drawn, low), high)

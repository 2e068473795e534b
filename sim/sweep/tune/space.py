"""The settings that a search chooses from: an axis for each key path, and a limit on GPUs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import floor, prod
from typing import TypeGuard

from sim.core.errors import InputError
from sim.latency.config import parallelism
from sim.scenario.load import LoadedScenario
from sim.scenario.search_sections import ChoiceDraw, IntRange, LogUniformDraw, Range, UniformRange
from sim.scenario.strict_yaml import YamlValue
from sim.sweep.plan import Plan, Settings, canonical

# Stepped numbers are rounded to this many digits: 0.1 + 2 x 0.1 is 0.3, not 0.30000000000000004.
_DIGITS = 12
_POOLS, _REPLICAS, _LATENCY = "pools", "replicas", "latency"
# The last parts of key paths that change the number of GPUs of a server.
_DEGREES = ("tp", "dp", "pp")

# Where a value is on an axis: its index if values can be counted, else the value itself.
Place = int | float
# Of one setting: a place on every axis, in the order of the axes.
Places = tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Countable:
    """An axis of single values.

    Attributes:
        num_values: the number of values.
        is_scale: the values are numbers in ascending order, so that neighbours behave similarly.
        low, step: the first number and the step to the next; unused if `values` are listed.
        values: the listed values; empty if `low` and `step` define them.
    """

    num_values: int
    is_scale: bool
    low: float = 0
    step: float = 1
    values: Sequence[YamlValue] = ()

    def value(self, place: Place) -> YamlValue:
        if self.values:
            return self.values[int(place)]
        number = self.low + self.step * place
        return number if isinstance(number, int) else float(f"{number:.{_DIGITS}g}")

    def place(self, value: YamlValue) -> Place | None:
        """Where the value is; None: it is not on the axis."""
        if self.values:
            return next((i for i, v in enumerate(self.values) if _are_same(v, value)), None)
        if not _is_number(value):
            return None
        nearest = round((value - self.low) / self.step)
        is_on_it = 0 <= nearest < self.num_values and self.value(nearest) == value
        return nearest if is_on_it else None

    def edges(self) -> list[YamlValue]:
        """The values that are checked before the search: the whole list, or both ends."""
        return list(self.values) or [self.value(0), self.value(self.num_values - 1)]


@dataclass(frozen=True, slots=True)
class Continuous:
    """An axis of all numbers between two.

    Attributes:
        low, high: the ends, both included.
        is_log: distance is measured by the logarithm: 1 to 10 is as far as 10 to 100.
    """

    low: float
    high: float
    is_log: bool

    def value(self, place: Place) -> YamlValue:
        return float(place)

    def place(self, value: YamlValue) -> Place | None:
        """Where the value is; None: it is not on the axis."""
        if not _is_number(value):
            return None
        return float(value) if self.low <= value <= self.high else None

    def edges(self) -> list[YamlValue]:
        """Both ends."""
        return [self.low, self.high]


Axis = Countable | Continuous


@dataclass(frozen=True, slots=True)
class Space:
    """All settings a search may try.

    Attributes:
        axes: by key path.
        fits: whether a setting may be tried; None: all may.
        deciding: the key paths that `fits` looks at.
    """

    axes: Mapping[str, Axis]
    fits: Callable[[Settings], bool] | None = None
    deciding: tuple[str, ...] = ()

    @property
    def num_settings(self) -> int | None:
        """The number of settings; None: an axis is continuous."""
        sizes = {
            key: axis.num_values for key, axis in self.axes.items() if isinstance(axis, Countable)
        }
        if len(sizes) < len(self.axes):
            return None
        if self.fits is None:
            return prod(sizes.values())
        others = prod(size for key, size in sizes.items() if key not in self.deciding)
        decide = Space({key: self.axes[key] for key in self.deciding}, self.fits)
        return others * sum(1 for _ in decide.all_places())

    def has(self, places: Places) -> bool:
        """Whether a setting may be tried."""
        return self.fits is None or self.fits(self.settings(places))

    def settings(self, places: Places) -> Settings:
        """Values by key path."""
        return {
            key: axis.value(place)
            for (key, axis), place in zip(self.axes.items(), places, strict=True)
        }

    def places(self, settings: Settings) -> Places | None:
        """The place of a setting; None: it is outside of the space."""
        places = [axis.place(settings[key]) for key, axis in self.axes.items()]
        inside = tuple(place for place in places if place is not None)
        return inside if len(inside) == len(places) and self.has(inside) else None

    def all_places(self) -> Iterator[Places]:
        """Every setting of a space without continuous axes; the last axis varies fastest."""
        counts = [axis.num_values for axis in self.axes.values() if isinstance(axis, Countable)]
        return filter(self.has, product(*map(range, counts)))


def axis_of(described: Range) -> Axis:
    """The axis of a range as the scenario gives it."""
    match described:
        case ChoiceDraw():
            values = described.values
            return Countable(len(values), _is_scale(values), values=values)
        case LogUniformDraw():
            return Continuous(described.min, described.max, is_log=True)
        case UniformRange(step=None):
            return Continuous(described.min, described.max, is_log=False)
        case UniformRange():
            low, step = described.min, described.step or 1.0
            # 0.3 is two steps of 0.1 from 0.1, though (0.3 - 0.1) / 0.1 is a little less than 2.
            num_steps = floor(float(f"{(described.max - low) / step:.{_DIGITS}g}"))
            return Countable(num_steps + 1, is_scale=True, low=low, step=step)
        case IntRange():
            num_steps = (described.max - described.min) // described.step
            return Countable(num_steps + 1, True, low=described.min, step=described.step)


def _is_scale(values: Sequence[YamlValue]) -> bool:
    numbers = [value for value in values if _is_number(value)]
    return len(numbers) == len(values) > 1 and sorted(numbers) == numbers


def _are_same(one: YamlValue, other: YamlValue) -> bool:
    if _is_number(one) and _is_number(other):
        return one == other
    return canonical(one) == canonical(other)


def _is_number(value: YamlValue) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def servers_of(loaded: LoadedScenario) -> Mapping[str, tuple[int, int]]:
    """For each pool: the number of its servers, and the GPUs of one. Without pools: one, `""`."""
    return {
        name: (one.scenario.replicas, parallelism(one.scenario.latency).num_gpus)
        for name, one in (loaded.pools or {"": loaded}).items()
    }


def num_gpus(loaded: LoadedScenario) -> int:
    """The GPUs of all servers."""
    return sum(replicas * gpus for replicas, gpus in servers_of(loaded).values())


class GpuLimit:
    """Says which settings of a search have no more GPUs than allowed.

    Attributes:
        deciding: the key paths of the axes that change the number of GPUs.
    """

    def __init__(self, plan: Plan, axes: Mapping[str, Axis], most: int, *, fills: bool) -> None:
        """Allow `most` GPUs.

        With `fills`, a setting may not be tried either if a pool can have its next larger number of
        servers, of those that the axes have, within the limit.
        """
        self._plan = plan
        self._axes = axes
        self._most = most
        self._fills = fills
        self._known: dict[str, Mapping[str, tuple[int, int]] | None] = {}
        self.deciding = tuple(key for key in axes if _decides(key))

    def fits(self, settings: Settings) -> bool:
        """Whether a setting may be tried. One that is no valid scenario may: its trial says why."""
        servers = self._servers(settings)
        if servers is None:
            return True
        used = sum(replicas * gpus for replicas, gpus in servers.values())
        if used > self._most:
            return False
        return not self._fills or all(
            used + self._num_more(_replicas_key(name), replicas) * gpus > self._most
            for name, (replicas, gpus) in servers.items()
        )

    def _servers(self, settings: Settings) -> Mapping[str, tuple[int, int]] | None:
        # A scenario is made for each combination of the other keys: replicas are only counted.
        sizes = {key: settings[key] for key in self.deciding if not _counts(key)}
        text = canonical(sizes)
        if text not in self._known:
            try:
                self._known[text] = servers_of(self._plan.vary(sizes))
            except InputError:
                self._known[text] = None
        known = self._known[text]
        if known is None:
            return None
        servers = {}
        for name, (own, gpus) in known.items():
            count = settings.get(_replicas_key(name), own)
            if not isinstance(count, int):
                return None
            servers[name] = (count, gpus)
        return servers

    def _num_more(self, key: str, count: int) -> float:
        """How many servers the axis's next number has more than `count`; infinity: it has none."""
        axis = self._axes.get(key)
        if not isinstance(axis, Countable):
            return float("inf")
        values = (axis.value(place) for place in range(axis.num_values))
        more = [value - count for value in values if isinstance(value, int) and value > count]
        return min(more, default=float("inf"))


def _replicas_key(pool: str) -> str:
    return f"{_POOLS}.{pool}.{_REPLICAS}" if pool else _REPLICAS


def _counts(key: str) -> bool:
    """Whether the key is a number of servers."""
    return key.rpartition(".")[2] == _REPLICAS


def _decides(key: str) -> bool:
    """Whether the key changes the number of GPUs."""
    parts = key.split(".")
    own = parts[2:] if parts[0] == _POOLS else parts
    if not own:
        return True
    return own in ([_REPLICAS], [_LATENCY]) or (own[0] == _LATENCY and own[-1] in _DEGREES)

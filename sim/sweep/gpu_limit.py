"""Counts the GPUs of deployments, and leaves out settings of a search that have too many."""

from collections.abc import Mapping

from sim.core.errors import InputError
from sim.latency.config import parallelism
from sim.scenario.load import LoadedScenario
from sim.sweep.plan import Plan, Settings, canonical
from sim.sweep.space import Axis, Countable

_REPLICAS = "replicas"
# The last parts of key paths that change the number of GPUs.
_DEGREES = ("tp", "dp", "pp")
_POOLS, _LATENCY = "pools", "latency"


def servers_of(loaded: LoadedScenario) -> Mapping[str, tuple[int, int]]:
    """For each pool: the number of its servers, and the GPUs of one. Without pools: by `""`."""
    return {
        name: (one.scenario.replicas, parallelism(one.scenario.latency).num_gpus)
        for name, one in (loaded.pools or {"": loaded}).items()
    }


def num_gpus(loaded: LoadedScenario) -> int:
    """The GPUs of all servers."""
    return sum(replicas * gpus for replicas, gpus in servers_of(loaded).values())


class GpuLimit:
    """Says which settings of a search have no more GPUs than allowed.

    Args:
        plan: the scenario.
        axes: the values that may be tried, by key path.
        most: the most GPUs.
        fills: leave out settings, too, to which one more server of the ranges could be added.
    """

    def __init__(self, plan: Plan, axes: Mapping[str, Axis], most: int, *, fills: bool) -> None:
        self._plan = plan
        self._axes = axes
        self._most = most
        self._fills = fills
        self._known: dict[str, Mapping[str, tuple[int, int]] | None] = {}
        self.deciding = tuple(key for key in axes if _decides(key))

    def fits(self, settings: Settings) -> bool:
        """Whether a setting may be tried. One that is no valid scenario may, and says why then."""
        servers = self._servers(settings)
        if servers is None:
            return True
        used = sum(replicas * gpus for replicas, gpus in servers.values())
        if used > self._most:
            return False
        return not self._fills or all(
            used + self._step(_key(name), replicas) * gpus > self._most
            for name, (replicas, gpus) in servers.items()
        )

    def _servers(self, settings: Settings) -> Mapping[str, tuple[int, int]] | None:
        # Numbers of servers are many and need no new scenario.
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
            count = settings.get(_key(name), own)
            if not isinstance(count, int):
                return None
            servers[name] = (count, gpus)
        return servers

    def _step(self, key: str, count: int) -> float:
        """How many servers more the next number of the ranges is; infinity: there is none."""
        axis = self._axes.get(key)
        if not isinstance(axis, Countable):
            return float("inf")
        values = (axis.value(place) for place in range(axis.num_values))
        more = [value - count for value in values if isinstance(value, int) and value > count]
        return min(more, default=float("inf"))


def _key(pool: str) -> str:
    return f"{_POOLS}.{pool}.{_REPLICAS}" if pool else _REPLICAS


def _counts(key: str) -> bool:
    return key.rpartition(".")[2] == _REPLICAS


def _decides(key: str) -> bool:
    parts = key.split(".")
    own = parts[2:] if parts[0] == _POOLS else parts
    if not own:
        return True
    return own in ([_REPLICAS], [_LATENCY]) or (own[0] == _LATENCY and own[-1] in _DEGREES)

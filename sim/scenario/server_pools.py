"""Makes a scenario of each server pool, and checks that the pools go together."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from sim.core.errors import InputError, KeyPath
from sim.engine.server_config import BOTH, DECODE, PREFILL
from sim.families import DEFAULT_FAMILY
from sim.latency.config import parallelism
from sim.scenario.key_locations import KeyLocations
from sim.scenario.overrides import Data
from sim.scenario.schema import BESIDE_THE_RUN, Scenario
from sim.scenario.servers_section import PoolSection
from sim.scenario.strict_yaml import YamlValue

_OWN = "pools"
_TRANSFER = "transfer"
# Keys that are about all pools together.
_SHARED = BESIDE_THE_RUN | {_OWN, _TRANSFER}
# Keys of the scenario that a pool may have, too.
_OF_POOLS = frozenset(PoolSection.model_fields) - {"role"}
# Keys of a pool by which its servers make use of the store.
_STORE_USERS = ("host_cache", "storage"), ("kv_offloading", "secondary_tiers")
# In the order in which their servers are numbered.
ROLES: Sequence[str] = (PREFILL, DECODE, BOTH)
# Stands for the section while the pools' own are not checked yet.
_ANY_LATENCY: Data = {
    "kind": "linear",
    "step_s": 0.01,
    "per_prefill_token_s": 0.0,
    "per_decode_request_s": 0.0,
    "per_context_token_s": 0.0,
}


def has_pools(data: Mapping[str, YamlValue]) -> bool:
    return isinstance(data.get(_OWN), dict)


def outline(data: Data) -> Data:
    """The data without the sections that are checked pool by pool."""
    kept = {key: value for key, value in data.items() if key not in _OF_POOLS}
    return {**kept, "latency": _ANY_LATENCY}


def with_last_pool(data: Data, pools: Mapping[str, Scenario], last: Data) -> Data:
    """The data, with the sections that the last pool has, and the servers of all pools.

    That pool sends the output to clients. It stands for the deployment wherever one server is
    asked for, for example for its GPU.
    """
    sections = {key: last[key] for key in _OF_POOLS if key in last}
    # The sum of all pools is within no pool's limits.
    sections.pop("autoscale", None)
    data = {key: value for key, value in data.items() if key != "autoscale"}
    return {**data, **sections, "replicas": sum(pool.replicas for pool in pools.values())}


def names_in_order(scenario: Scenario) -> list[str]:
    """The pools in the order in which their servers are numbered: prefill servers first."""
    pools = scenario.pools or {}
    return sorted(pools, key=lambda name: ROLES.index(pools[name].role))


def pool_data(data: Data, name: str) -> Data:
    """The scenario of a pool's servers alone: its keys merged over those of all pools."""
    pools = cast("Mapping[str, Data]", data[_OWN])
    own = {key: value for key, value in pools[name].items() if key != "role"}
    shared = {key: value for key, value in data.items() if key not in _SHARED}
    merged = cast("Data", _merged(shared, own))
    if not uses_store(merged):
        merged.pop("store", None)
    return merged


def uses_store(data: Mapping[str, Any]) -> bool:
    """Whether a pool's servers make use of the store, which may be there for another pool."""
    return any(_has(data, ("scheduler", *keys)) for keys in _STORE_USERS)


def _has(data: Mapping[str, Any], keys: tuple[str, ...]) -> bool:
    section: Any = data
    for key in keys:
        section = section.get(key) if isinstance(section, dict) else None
    return bool(section) or section == {}


def _merged(shared: YamlValue, own: YamlValue) -> YamlValue:
    if own is None:
        return shared
    if not (isinstance(shared, dict) and isinstance(own, dict)):
        return own
    for key, default in (("kind", None), ("family", DEFAULT_FAMILY)):
        kind = own.get(key)
        if kind is not None and kind != shared.get(key, default):
            return own
    merged = dict(shared)
    for key, value in own.items():
        merged[key] = _merged(shared[key], value) if key in shared else value
    return merged


def pool_locations(locations: KeyLocations, name: str) -> KeyLocations:
    """Where the keys of a pool's scenario were written: in the pool, or among those of all."""
    own = (_OWN, name)
    mine = {path[2:]: path for path in locations.labels if path[:2] == own}
    labels: dict[KeyPath, str] = {}
    overridden: set[KeyPath] = set()
    for path, label in locations.labels.items():
        if path[:1] == (_OWN,) or path in mine:
            continue
        labels[path] = label
        if path in locations.overridden:
            overridden.add(path)
    for path, written in mine.items():
        labels[path] = f"{locations.labels[written]}: {_OWN}.{name}"
        if written in locations.overridden:
            overridden.add(path)
    labels.setdefault((), locations.labels[()])
    return KeyLocations(labels, frozenset(overridden))


def check_pools(scenario: Scenario, pools: Mapping[str, Scenario]) -> None:
    """Check that the pools go together."""
    roles = {name: (scenario.pools or {})[name].role for name in pools}
    by_role = {role: [name for name in pools if roles[name] == role] for role in ROLES}
    disaggregated = by_role[PREFILL] + by_role[DECODE]
    _check_roles(by_role)
    if disaggregated and scenario.transfer is None:
        raise InputError("is required with prefill and decode servers", key=(_TRANSFER,))
    if not disaggregated and scenario.transfer is not None:
        raise InputError("needs prefill and decode servers", key=(_TRANSFER,))
    _check_schedulers(pools, disaggregated)
    for names in by_role.values():
        for name in names[1:]:
            if pools[name].router != pools[names[0]].router:
                reason = f"differs from that of pool {names[0]}, which has the same role"
                raise InputError(reason, key=(_OWN, name, "router"))
    for name in disaggregated:
        rule = _written(scenario, name, "autoscale", "rule")
        _check_limits(roles[name], pools[name], rule)
        refusal = pools[name].scheduler.refuses_stages(roles[name])
        if refusal is not None and parallelism(pools[name].latency).pp > 1:
            raise InputError(refusal, key=_written(scenario, name, "latency", "pp"))


def _check_schedulers(pools: Mapping[str, Scenario], disaggregated: Sequence[str]) -> None:
    """All pools have one family; where KV is sent in whole pages, these have one size."""
    first, *others = pools
    for name in others:
        mine, its = pools[name].scheduler, pools[first].scheduler
        key = None
        if mine.family != its.family:
            key, values = "family", (mine.family, its.family)
        elif disaggregated and mine.sends_whole_pages and mine.page_size != its.page_size:
            key, values = mine.page_key, (str(mine.page_size), str(its.page_size))
        if key is not None:
            reason = f"is {values[0]}, but that of pool {first} is {values[1]}"
            raise InputError(reason, key=(_OWN, name, "scheduler", key))


def _written(scenario: Scenario, name: str, section: str, key: str) -> KeyPath:
    """The key of a section of the pool, or that of all pools if the pool itself lacks it."""
    own = getattr((scenario.pools or {})[name], section)
    return (_OWN, name, section, key) if own is not None and key in own else (section, key)


def _check_limits(role: str, pool: Scenario, rule: KeyPath) -> None:
    """Prefill servers can be scaled by TTFT, decode servers by TPOT."""
    if pool.autoscale is None or pool.autoscale.rule.kind != "slo":
        return
    limit = "ttft_ms" if role == PREFILL else "tpot_ms"
    if getattr(pool.slo, limit) is None:
        reason = f"of kind slo needs slo.{limit} in a pool of role {role}"
        raise InputError(reason, key=rule)


def _check_roles(by_role: Mapping[str, Sequence[str]]) -> None:
    """Pools of role `both` stand alone; the other two roles need each other."""
    for role, other in ((PREFILL, DECODE), (DECODE, PREFILL)):
        if not by_role[role]:
            continue
        key = (_OWN, by_role[role][0], "role")
        if by_role[BOTH]:
            reason = f"{role} does not go with role {BOTH}, which pool {by_role[BOTH][0]} has"
            raise InputError(reason, key=key)
        if not by_role[other]:
            raise InputError(f"{role} needs a pool of role {other}", key=key)

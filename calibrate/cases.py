"""Groups real runs: repeats of one scenario, and scenarios that differ in settings alone."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from calibrate.rebuild import RebuiltRun

# Scenarios that differ only in these keys have the same load.
_KEYS_BESIDE_LOAD = ("name", "latency", "scheduler", "slo")


def repeats(runs: Sequence[RebuiltRun]) -> list[list[RebuiltRun]]:
    """Groups of runs with equal scenarios, in the order of their first runs."""
    groups: dict[str, list[RebuiltRun]] = {}
    for run in runs:
        groups.setdefault(run.scenario_hash, []).append(run)
    return list(groups.values())


def labels(scenarios: Sequence[Mapping[str, Any]]) -> list[str]:
    """A name for each scenario; if several have one name, the values that differ are appended."""
    namesakes: dict[str, list[dict[str, str]]] = {}
    for scenario in scenarios:
        namesakes.setdefault(scenario["name"], []).append(_flat(scenario))
    return [
        scenario["name"] + _differing(_flat(scenario), namesakes[scenario["name"]])
        for scenario in scenarios
    ]


def same_load(scenarios: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Groups of two or more scenarios, by index, that serve the same traffic in different ways."""
    groups: dict[str, list[int]] = {}
    for number, scenario in enumerate(scenarios):
        load = {key: value for key, value in scenario.items() if key not in _KEYS_BESIDE_LOAD}
        groups.setdefault(json.dumps(load, sort_keys=True), []).append(number)
    return [numbers for numbers in groups.values() if len(numbers) > 1]


def _differing(scenario: Mapping[str, str], namesakes: Sequence[Mapping[str, str]]) -> str:
    keys = dict.fromkeys(key for other in namesakes for key in other)
    values = [
        f"{key.rpartition('.')[2]}={scenario[key]}"
        for key in keys
        if key in scenario and len({other.get(key) for other in namesakes}) > 1
    ]
    return f" ({', '.join(values)})" if values else ""


def _flat(value: object, path: str = "") -> dict[str, str]:
    """Every value by its key path, as JSON."""
    if not isinstance(value, Mapping):
        return {path: value if isinstance(value, str) else json.dumps(value)}
    found: dict[str, str] = {}
    for key, child in value.items():
        found |= _flat(child, f"{path}.{key}" if path else str(key))
    return found

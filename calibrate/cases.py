"""Groups real runs: repeats of one scenario, and scenarios that differ in settings alone."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from calibrate.rebuild import RebuiltRun

# What a setting under comparison is: everything else makes up the load.
_NOT_THE_LOAD = ("name", "latency", "scheduler", "slo")


def repeats(runs: Sequence[RebuiltRun]) -> list[list[RebuiltRun]]:
    """Runs of equal scenarios, in order of first appearance."""
    groups: dict[str, list[RebuiltRun]] = {}
    for run in runs:
        groups.setdefault(run.scenario_hash, []).append(run)
    return list(groups.values())


def labels(scenarios: Sequence[Mapping[str, Any]]) -> list[str]:
    """A name for each scenario; those of one name are told apart by the keys that differ."""
    namesakes: dict[str, list[dict[str, str]]] = {}
    for scenario in scenarios:
        namesakes.setdefault(scenario["name"], []).append(_flat(scenario))
    return [
        scenario["name"] + _differing(_flat(scenario), namesakes[scenario["name"]])
        for scenario in scenarios
    ]


def same_load(scenarios: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Numbers of the scenarios that serve the same traffic with other settings, two or more."""
    groups: dict[str, list[int]] = {}
    for number, scenario in enumerate(scenarios):
        load = {key: value for key, value in scenario.items() if key not in _NOT_THE_LOAD}
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
    """Every leaf by its key path, as JSON."""
    if not isinstance(value, Mapping):
        return {path: value if isinstance(value, str) else json.dumps(value)}
    found: dict[str, str] = {}
    for key, child in value.items():
        found |= _flat(child, f"{path}.{key}" if path else str(key))
    return found

"""The traffic that ships with the program: `suite.yaml`, by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import cast

from sim.scenario.strict_yaml import YamlValue, parse_yaml_mapping


@dataclass(frozen=True, slots=True)
class SuiteTraffic:
    """SuiteTraffic of a contest.

    Attributes:
        workload: the section `workload`, as data; it comes at its own rate.
        about: what it is, in a line; empty: its file does not say.
        pool_tokens: tokens of each KV pool under this traffic; None: those of the scenario.
    """

    name: str
    workload: YamlValue
    about: str = ""
    pool_tokens: int | None = None


@cache
def suite() -> Mapping[str, SuiteTraffic]:
    """All traffic that ships, in its order."""
    text = files("sim.contest").joinpath("suite.yaml").read_text(encoding="utf-8")
    entries = cast("dict[str, dict[str, YamlValue]]", parse_yaml_mapping(text, "suite.yaml").value)
    return {
        name: SuiteTraffic(
            name,
            entry["workload"],
            str(entry["about"]),
            cast("int | None", entry.get("pool_tokens")),
        )
        for name, entry in entries.items()
    }

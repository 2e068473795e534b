"""A scenario in a Python program, and what may stand in its place."""

from collections.abc import Mapping
from copy import deepcopy
from html import escape
from pathlib import Path
from typing import Any

from servetwin.errors import with_one_line_errors
from sim.core.errors import InputError
from sim.scenario.load import LoadedScenario, change, load_scenario, load_scenario_data
from sim.scenario.strict_yaml import yaml_text

Settings = Mapping[str, Any]


class Scenario:
    """A valid scenario. `print` shows it as YAML."""

    def __init__(self, loaded: LoadedScenario) -> None:
        self._loaded = loaded

    @property
    def loaded(self) -> LoadedScenario:
        """The scenario as the modules of `sim` take it."""
        return self._loaded

    @property
    def name(self) -> str:
        """Its key `name`."""
        return str(self._loaded.scenario.name)

    @property
    def data(self) -> dict[str, Any]:
        """A copy of its keys and values, as they were written, with settings applied."""
        return deepcopy(dict(self._loaded.raw))

    @with_one_line_errors
    def change(self, settings: Settings) -> "Scenario":
        """Another scenario, with some settings changed; this one stays as it is.

        Args:
            settings: values by key path, as for `run`.

        Raises:
            InputError: the changed scenario is not valid.
        """
        return Scenario(change(self._loaded, settings))

    def __repr__(self) -> str:
        return f"<Scenario {self.name} of {self._loaded.path}: {', '.join(self._loaded.raw)}>"

    def __str__(self) -> str:
        return yaml_text(dict(self._loaded.raw))

    def _repr_html_(self) -> str:
        return f"<b>{escape(self.name)}</b>\n<pre>{escape(str(self))}</pre>"


Source = Scenario | LoadedScenario | Path | str | Mapping[str, Any]


def scenario_of(source: Source, settings: Settings | None = None) -> Scenario:
    """The scenario that a path, a mapping or an object is, with some settings changed.

    Raises:
        InputError: it is no scenario.
    """
    settings = settings or {}
    match source:
        case Scenario():
            return source.change(settings) if settings else source
        case LoadedScenario():
            return Scenario(change(source, settings) if settings else source)
        case str() | Path():
            return Scenario(load_scenario(source, settings))
        case Mapping():
            return Scenario(load_scenario_data(source, settings))
        case _:
            kind = type(source).__name__
            raise InputError(f"a scenario must be a path, a mapping or a Scenario, got {kind}")

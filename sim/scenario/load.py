"""From YAML text and `--set` options to a validated scenario, or to a one-line error."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, SupportsIndex, cast

from pydantic import Field, ValidationError

from sim.core.errors import InputError, KeyPath, dotted
from sim.core.files import json_digest
from sim.families import DEFAULT_FAMILY
from sim.family.user_family import FamilyFolder
from sim.installed.environment import engine_hash
from sim.scenario.key_locations import KeyLocations
from sim.scenario.overrides import (
    Change,
    Data,
    Overrides,
    apply_changes,
    apply_overrides,
    plain_data,
)
from sim.scenario.schema import BESIDE_THE_RUN, Scenario
from sim.scenario.server_pools import (
    check_pools,
    has_pools,
    names_in_order,
    outline,
    pool_data,
    pool_locations,
    with_last_pool,
)
from sim.scenario.strict_yaml import YamlValue, parse_yaml_mapping, read_yaml_file
from sim.user.modules import source_hash
from sim.user.objects import ENGINE_KEY, names_class, user_classes
from sim.validation import StrictModel
from sim.workload import TraceFormat
from sim.workload.config import TraceConfig


@dataclass(frozen=True, slots=True)
class LoadedScenario:
    """A validated scenario and where it came from.

    Attributes:
        path: its file, as given; for text that is in no file, the text's name.
        base_dir: the folder that paths in the scenario are relative to.
        raw: the data before validation, with options applied.
        pools: for each server pool, in the order in which servers are numbered, the scenario that
            its servers alone would have.
    """

    scenario: Scenario
    path: Path
    base_dir: Path
    content_hash: str
    raw: Mapping[str, YamlValue]
    locations: KeyLocations
    pools: Mapping[str, "LoadedScenario"] = field(default_factory=dict)

    def error(self, path: KeyPath, reason: str) -> InputError:
        """An error about a key, in the one-line form: `file.yaml:3: hardware: reason`."""
        return InputError(self.locations.message(path, reason))

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        # The section of a user's own family is of a class that another process has not loaded.
        if names_class(self.scenario.scheduler.family):
            return _validated, (dict(self.raw), self.locations, self.path, self.base_dir)
        return object.__reduce_ex__(self, protocol)


def load_scenario(path: Path | str, overrides: Overrides = ()) -> LoadedScenario:
    """Read and validate a scenario file. Files that it names are not read, except users' classes.

    Overrides are `key.path=value` options, or values by key path, applied in order; paths in them
    are relative to the current folder.

    Raises InputError: `file.yaml:LINE: key.path: reason`, the first problem in reading order.
    """
    path = Path(path)
    text = read_yaml_file(path)
    return load_scenario_text(text, overrides, name=str(path), base_dir=path.parent)


def load_scenario_text(
    text: str, overrides: Overrides = (), *, name: str = "scenario", base_dir: Path = Path()
) -> LoadedScenario:
    """Like `load_scenario`, for YAML text that error messages call `name`."""
    document = parse_yaml_mapping(text, name)
    locations = KeyLocations.of_lines(name, document.lines)
    data, locations = apply_overrides(cast("Data", document.value), locations, overrides, base_dir)
    return _validated(data, locations, Path(name), base_dir)


def load_scenario_data(
    data: Mapping[str, object],
    overrides: Overrides = (),
    *,
    name: str = "scenario",
    base_dir: Path = Path(),
) -> LoadedScenario:
    """Like `load_scenario`, for data that are in no file: `name: key.path: reason`."""
    plain = cast("Data", plain_data(data, name))
    locations = KeyLocations(dict.fromkeys(_key_paths(plain), name))
    changed, locations = apply_overrides(plain, locations, overrides, base_dir)
    return _validated(changed, locations, Path(name), base_dir)


def load_scenario_options(
    data: Mapping[str, YamlValue],
    labels: Mapping[KeyPath, str],
    overrides: Overrides = (),
    *,
    path: Path,
) -> LoadedScenario:
    """Like `load_scenario`, for a scenario that other options of a command line describe.

    `labels` name the option that sets each key, for errors; `path` is the file that the scenario
    may be written to.
    """
    locations = KeyLocations({(): "the options", **labels}, frozenset(labels))
    changed, locations = apply_overrides(dict(data), locations, overrides, path.parent)
    return _validated(changed, locations, path, path.parent)


def change(loaded: LoadedScenario, overrides: Overrides) -> LoadedScenario:
    """The scenario with options applied, as if they had been given when it was loaded."""
    raw = cast("Data", loaded.raw)
    data, locations = apply_overrides(raw, loaded.locations, overrides, loaded.base_dir)
    return _validated(data, locations, loaded.path, loaded.base_dir)


def _key_paths(value: YamlValue, path: KeyPath = ()) -> Iterator[KeyPath]:
    yield path
    items: Sequence[tuple[str | int, YamlValue]] = ()
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, item in items:
        yield from _key_paths(item, (*path, key))


def refuse_user_classes(loaded: LoadedScenario) -> None:
    """Check that a scenario made from a file of others names no class of anybody's."""
    for key, name in user_classes(loaded.scenario):
        raise loaded.error(key, f"{name} is Python code, which a file of others must not name")


def refuse_pools(loaded: LoadedScenario, what: str) -> None:
    """Check that a scenario has no server pools, which `what` does not know."""
    if loaded.pools:
        raise loaded.error(("pools",), f"does not go with {what}")


def vary(loaded: LoadedScenario, changes: Sequence[Change]) -> LoadedScenario:
    """The scenario with some values changed, and without the sections in `BESIDE_THE_RUN`."""
    base = {key: value for key, value in loaded.raw.items() if key not in BESIDE_THE_RUN}
    locations = loaded.locations.outside(BESIDE_THE_RUN)
    data, locations = apply_changes(base, locations, changes)
    return _validated(data, locations, loaded.path, loaded.base_dir)


def _validated(data: Data, locations: KeyLocations, path: Path, base_dir: Path) -> LoadedScenario:
    pools: dict[str, LoadedScenario] = {}
    whole = data
    if has_pools(data):
        outlined = _scenario_of(outline(data), locations, base_dir)
        for name in names_in_order(outlined):
            own = pool_locations(locations, name)
            pools[name] = _validated(pool_data(data, name), own, path, base_dir)
        scenarios = {name: pool.scenario for name, pool in pools.items()}
        try:
            check_pools(outlined, scenarios)
        except InputError as error:
            raise InputError(locations.message(error.key, error.reason)) from None
        last = pools[next(reversed(pools))]
        whole = with_last_pool(data, scenarios, cast("Data", last.raw))
    scenario = _scenario_of(whole, locations, base_dir)
    try:
        digest = content_hash(scenario, base_dir, pools)
    except InputError as error:
        raise InputError(locations.message(error.key, error.reason)) from None
    return LoadedScenario(scenario, path, base_dir, digest, data, locations, pools)


def _scenario_of(data: Data, locations: KeyLocations, base_dir: Path) -> Scenario:
    try:
        return Scenario.model_validate(data, context=FamilyFolder(base_dir))
    except ValidationError as error:
        from sim.scenario.explain import explain

        raise explain(error, Scenario, locations) from None


def content_hash(
    scenario: Scenario, base_dir: Path = Path(), pools: Mapping[str, LoadedScenario] | None = None
) -> str:
    """SHA-256, in hex, of the scenario as canonical JSON: sorted keys, defaults filled in.

    Of server pools it has the hashes of their own scenarios.

    Comments, the order of keys, defaults that are written down and the file's folder do not change
    it. The sources of users' own classes are part of it; the sections in `BESIDE_THE_RUN` are not.
    """
    return json_digest(_content(scenario, base_dir, pools or {}))


def hashes_with_seeds(loaded: LoadedScenario) -> Callable[[int], str]:
    """Returns a function from a seed to the hash of the scenario with that seed.

    It takes a hundredth of the time of `vary`. The scenario must have no server pools, which have
    the seed in theirs.
    """
    content = _content(loaded.scenario, loaded.base_dir, {})
    return lambda seed: json_digest({**content, "seed": seed})


def _content(
    scenario: Scenario, base_dir: Path, pools: Mapping[str, LoadedScenario]
) -> dict[str, Any]:
    content = scenario.model_dump(mode="json", exclude=set(BESIDE_THE_RUN))
    for name, pool in pools.items():
        role = content["pools"][name]["role"]
        content["pools"][name] = {"role": role, "hash": pool.content_hash}
    if content["scheduler"]["family"] == DEFAULT_FAMILY:
        del content["scheduler"]["family"]  # hashes made before there were families stay valid
    if content["fitted"] is None:
        del content["fitted"]  # the same
    sources = {}
    for key, name in user_classes(scenario):
        try:
            is_engine = key[-1] == ENGINE_KEY
            sources[dotted(key)] = (
                engine_hash(base_dir / name) if is_engine else source_hash(name, base_dir)
            )
        except InputError as error:
            raise InputError(error.reason, key=key) from None
    if sources:
        content["user_sources"] = sources
    return content


class TraceFile(StrictModel):
    """What `--set` can change: the keys of `workload`, and the seed."""

    seed: int = Field(default=0, ge=0)
    workload: TraceConfig


def load_trace(path: Path, format_: TraceFormat, overrides: Sequence[str]) -> TraceFile:
    """The section for a file in this format. The file is not read."""
    data: Data = {"workload": {"kind": "trace", "format": format_, "path": str(path)}}
    data, locations = apply_overrides(data, KeyLocations.of_lines(str(path), {}), overrides)
    try:
        return TraceFile.model_validate(data)
    except ValidationError as error:
        from sim.scenario.explain import explain

        raise explain(error, TraceFile, locations) from None

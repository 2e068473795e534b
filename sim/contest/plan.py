"""Checks a scenario's `contest` section, and says what each of its runs is."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from sim.contest.suite import SuiteTraffic, suite
from sim.core.errors import InputError, KeyPath, shorten, unknown_name
from sim.scenario.contest_section import OWN, ContestSection
from sim.scenario.load import LoadedScenario, refuse_pools, vary
from sim.scenario.overrides import Change
from sim.scenario.schema import BESIDE_THE_RUN
from sim.scenario.strict_yaml import YamlValue
from sim.sweep.plan import SEED, Plan, Point, Settings, canonical, seeds_of
from sim.workload.config import AgentsConfig, MixConfig, SessionsConfig, WorkloadConfig
from sim.workload.kinds.stats import scaled

# What all contestants must have in common.
_SHARED = (*BESIDE_THE_RUN, SEED, "slo", "name", "workload", "warmup", "cooldown", "pools")
# The setting of a run that names its contestant.
CONTESTANT = "contestant"


@dataclass(frozen=True, slots=True)
class Contestants(Plan):
    """Makes scenarios of settings, one of which is the contestant's name.

    Attributes:
        bases: each contestant's scenario.
    """

    bases: Mapping[str, LoadedScenario] = field(default_factory=dict)

    def vary(self, settings: Settings) -> LoadedScenario:
        """The scenario of a contestant with these values."""
        base = self.bases[str(settings[CONTESTANT])]
        changes = [
            Change(key, value, f"{base.path}: contest: {key}={shorten(canonical(value))}")
            for key, value in settings.items()
            if key != CONTESTANT
        ]
        return vary(base, changes)


@dataclass(frozen=True, slots=True)
class Contest:
    """A checked contest.

    Attributes:
        plan: makes the scenario of each run.
        settings: of each contestant, its values by key path as the file has them.
        overrides: the `--set` options that the scenario was loaded with.
    """

    section: ContestSection
    plan: Contestants
    settings: Mapping[str, Settings]
    traffic: tuple[SuiteTraffic, ...]
    seeds: tuple[int, ...]
    overrides: tuple[str, ...] = ()

    @property
    def base(self) -> LoadedScenario:
        """The scenario with the `contest` section."""
        return self.plan.base

    @property
    def num_runs(self) -> int:
        """The runs of all contestants, without those that find the capacities."""
        section = self.section
        num_cells = len(section.contestants) * len(self.traffic) * len(section.loads)
        return num_cells * len(self.seeds)

    def settings_of(
        self, contestant: str, traffic: SuiteTraffic, factor: float
    ) -> dict[str, YamlValue]:
        """The key paths with which `simulate run` runs a contestant under some traffic.

        `factor` is how much faster requests come than the traffic's own rate.
        """
        traffic_settings = self.traffic_settings(contestant, traffic, factor)
        return {**self.settings[contestant], **traffic_settings}

    def points(self, contestant: str, traffic: SuiteTraffic, factor: float) -> tuple[Point, ...]:
        """The runs of a contestant under some traffic, one for each seed."""
        own = self.traffic_settings(contestant, traffic, factor)
        return self.plan.with_seeds({CONTESTANT: contestant, **own}, self.seeds)

    def traffic_settings(
        self, contestant: str, traffic: SuiteTraffic, factor: float
    ) -> dict[str, YamlValue]:
        """The key paths of `settings_of` that make the traffic, and set the pool under it."""
        settings: dict[str, YamlValue] = {"workload": traffic.workload}
        base = {CONTESTANT: contestant, **settings}
        scenario = self.plan.vary(base).scenario
        # As many requests at every load: so runs take equally long, and all have a p99. Sessions
        # begin for as long at each: of a fixed number soon all would wait for answers, at any load.
        num_factor = None if _has_sessions(scenario.workload) else 1.0
        faster = scaled(scenario.workload, factor, num_factor)
        settings |= {f"workload.{key}": value for key, value in faster.items()}
        if traffic.pool_tokens is not None:
            section = scenario.scheduler
            settings[f"scheduler.{section.pool_key}"] = section.pool_setting(traffic.pool_tokens)
        return settings


def plan_contest(loaded: LoadedScenario, overrides: Sequence[str] = ()) -> Contest:
    """Check the scenario's `contest` section; it was loaded with these `--set` options.

    Raises:
        InputError: there is no such section or no SLO; unknown traffic; a contestant that is no
            valid scenario under any of the traffic, or sets what all have in common. The line
            names the file, the line and the key path.
    """
    section = loaded.scenario.contest
    if section is None:
        raise loaded.error((), "has no contest section")
    refuse_pools(loaded, "simulate contest")
    if not loaded.scenario.slo.has_limit:
        reason = "needs an slo section with a limit"
        raise loaded.error(("contest", "min_slo_attainment"), reason)
    given = section.seeds
    seeds = tuple(range(1, given + 1)) if isinstance(given, int) else given
    bases = {name: _contestant(loaded, name) for name in section.contestants}
    settings = {name: dict(values) for name, values in section.contestants.items()}
    plan = Contestants(loaded, (), (), "contest", bases)
    traffic, seeds = tuple(_traffic(loaded, section)), seeds_of(loaded, "contest", seeds)
    found = Contest(section, plan, settings, traffic, seeds, tuple(overrides))
    _check_runs(found)
    return found


def _contestant(loaded: LoadedScenario, name: str) -> LoadedScenario:
    """The scenario of a contestant; errors name the line of the file that it is written in."""
    assert loaded.scenario.contest is not None  # noqa: S101 - the caller has checked it
    changes = []
    for key, value in loaded.scenario.contest.contestants[name].items():
        place: KeyPath = ("contest", "contestants", name, key)
        if key.partition(".")[0] in _SHARED:
            raise loaded.error(place, "cannot be set: it is the same for all contestants")
        written = loaded.locations.labels[loaded.locations.nearest(place)]
        changes.append(Change(key, value, f"{written}: contestant {name}: {key}"))
    return vary(loaded, changes)


def _traffic(loaded: LoadedScenario, section: ContestSection) -> Iterator[SuiteTraffic]:
    names: list[str] = []
    for number, given in enumerate(section.traffic or tuple(suite())):
        place: KeyPath = ("contest", "traffic", number)
        name = given if isinstance(given, str) else given.name
        if name in names:
            raise loaded.error(place, f"{name} is given twice")
        names.append(name)
        raw = cast("dict[str, YamlValue]", loaded.raw)
        if not isinstance(given, str):
            written = cast("Any", raw["contest"])["traffic"][number]["workload"]
            yield SuiteTraffic(name, written, "", given.pool_tokens)
        elif name == OWN:
            yield SuiteTraffic(OWN, raw["workload"])
        elif name in suite():
            yield suite()[name]
        else:
            raise loaded.error(place, unknown_name("traffic", name, (*suite(), OWN)))


def _check_runs(contest: Contest) -> None:
    """Check each contestant under each traffic."""
    for number, traffic in enumerate(contest.traffic):
        for name in contest.section.contestants:
            try:
                slow, fast = (
                    contest.plan.vary(
                        {
                            CONTESTANT: name,
                            **contest.traffic_settings(name, traffic, factor),
                        }
                    )
                    for factor in (1.0, 2.0)
                )
            except InputError as error:
                raise InputError(f"{error} (contestant {name}, traffic {traffic.name})") from None
            if fast.content_hash == slow.content_hash:
                reason = f"{traffic.name}: this traffic cannot come faster or more slowly"
                raise contest.base.error(("contest", "traffic", number), reason)


def _has_sessions(workload: WorkloadConfig) -> bool:
    parts = [workload]
    if isinstance(workload, MixConfig):
        parts = [part.workload for part in workload.parts]
    return any(isinstance(part, SessionsConfig | AgentsConfig) for part in parts)


def factor_of(capacity: float, load: float) -> float:
    """How much faster requests come at a load: to four digits, so that commands stay short."""
    return float(f"{capacity * load:.4g}")

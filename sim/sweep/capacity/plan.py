"""Turns a scenario's `plan` section into what a search for deployments will do."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sim.core.errors import InputError, KeyPath
from sim.families import family_named
from sim.latency.config import RooflineLatencyConfig
from sim.latency.hardware import load_hardware
from sim.scenario.load import LoadedScenario, refuse_pools
from sim.scenario.schema import BESIDE_THE_RUN
from sim.scenario.search_sections import MemorySection, PlanSection
from sim.sweep.capacity.candidates import (
    DEGREES,
    REPLICAS,
    Candidate,
    Size,
    candidates_of,
    pairs_of,
)
from sim.sweep.capacity.server_loads import ServerLoads
from sim.sweep.capacity.traffic_kv import TrafficKv, is_useless, traffic_kv
from sim.sweep.plan import SEED, Plan, Settings, seeds_of
from sim.workload.kinds.stats import WHOLE, load_of, rate_of, scaled
from sim.workload.traces.read import read_trace

# Keys that settings of a plan may not have: other keys of the section set them, or deployments are
# judged by them, or they do not change a run.
_NOT_SET = (*BESIDE_THE_RUN, SEED, "slo", "name", "workload", REPLICAS)


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """What a search for deployments will do.

    Attributes:
        section: the section `plan`.
        plan: makes scenarios of settings; it has no points, because the search chooses them.
        candidates: what a replica may be, those that cannot run included.
        seeds: every deployment is run with each of them.
        base_factor: by which the workload's own rate is multiplied.
        base_load: the workload's own rate, or another number that stands for its load, and the unit
            of that.
        server_loads: estimates how many servers the traffic keeps busy.
        kv: how much KV the traffic has, if sizes of memory are searched for.
        num_useless: candidates that were left out, because with less memory they do the same.
    """

    section: PlanSection
    plan: Plan
    candidates: tuple[Candidate, ...]
    seeds: tuple[int, ...]
    base_factor: float
    base_load: tuple[float, str]
    server_loads: ServerLoads
    kv: TrafficKv | None = None
    num_useless: int = 0

    @property
    def is_for_load(self) -> bool:
        """Whether the most load is sought, and not the least cost."""
        return self.section.objective == "load"

    @property
    def is_scalable(self) -> bool:
        """Whether the workload has a rate that can be multiplied."""
        return bool(scaled(self.plan.base.scenario.workload, 1.0))

    @property
    def num_headroom_steps(self) -> int:
        """How many headrooms there are to choose from: multiples of `headroom_step`."""
        # Rounding must not add a step to a multiple.
        return math.ceil(self.section.max_headroom / self.section.headroom_step - 1e-9)

    def headroom(self, steps: int) -> float:
        """The added rate, as a share of the plan's rate, after this number of headroom steps."""
        return min(steps * self.section.headroom_step, self.section.max_headroom)

    def amount(self, load: float) -> tuple[float, str]:
        """A load, given as a multiple of the plan's own, in requests/s or what else it has."""
        base, unit = self.base_load
        amount = base * self.base_factor * load
        return (round(amount) if unit in WHOLE else amount), unit

    def busy(self, candidate: Candidate) -> tuple[float, ...]:
        """How many servers of each kind the plan's traffic keeps busy, estimated from step times.

        Zeros if there is no estimate.
        """
        if candidate.decoders is not None:
            return candidate.decoders.loads
        return (self.server_loads.of(candidate).both,)

    def settings(self, candidate: Candidate, size: Size, load: float = 1.0) -> Settings:
        """The settings with which `simulate run` runs a deployment, without the seed.

        `load` is a multiple of the plan's own. A search for the most load never has fewer requests
        than the scenario: few requests say little of an SLO.
        """
        factor = self.base_factor * load
        num_factor = max(1.0, factor) if self.is_for_load else factor
        return {**candidate.deployed(size), **_traffic(self.plan, factor, num_factor)}


def _traffic(plan: Plan, factor: float, num_factor: float) -> Settings:
    """The settings with which requests come `factor` times as fast."""
    changes = {} if factor == 1 else scaled(plan.base.scenario.workload, factor, num_factor)
    return {f"workload.{key}": value for key, value in changes.items()}


def plan_capacity(loaded: LoadedScenario) -> CapacityPlan:
    """Check the scenario's `plan` section and list its candidates.

    Raises:
        InputError: there is no such section or no SLO; a key path does not exist, has a wrong
            value, or cannot be set; the traffic has no rate that could be scaled. The message names
            the file, the line and the key path.
    """
    refuse_pools(loaded, "simulate plan, which makes pools itself with plan.disaggregated")
    section = loaded.scenario.plan
    if section is None:
        raise loaded.error((), "has no plan section")
    if not loaded.scenario.slo.has_limit:
        raise loaded.error(("plan", "min_slo_attainment"), "needs an slo section with a limit")
    if loaded.scenario.autoscale is not None:
        reason = "does not go with simulate plan, which looks for fleets of a constant size"
        raise loaded.error(("autoscale",), reason)
    seeds = seeds_of(loaded, "plan", section.seeds)
    _check_keys(loaded, section)
    if section.memory is not None:
        _check_memory(loaded)
    plan = Plan(loaded, (), (), "plan")
    candidates = list(candidates_of(plan, section))
    factor = _base_factor(loaded, section)
    kv, num_all = None, len(candidates)
    if section.memory is not None:
        kv = traffic_kv(plan, _traffic(plan, factor, factor), seeds, read_trace)
        if section.objective == "cost":
            # For more load the traffic may grow, and its KV with it.
            candidates = _useful(candidates, section.memory, kv)
    loads = ServerLoads(plan, factor, read_trace, None if kv is None else kv.hit_pct)
    if section.disaggregated is not None:
        candidates += pairs_of(
            section, section.disaggregated, candidates, lambda one: loads.of(one)[:2]
        )
    load = load_of(loaded.scenario.workload, lambda trace: read_trace(trace, loaded.base_dir))
    found = CapacityPlan(
        section,
        plan,
        tuple(candidates),
        seeds,
        factor,
        load,
        loads,
        kv,
        0 if kv is None else num_all - len(candidates),
    )
    if found.is_for_load and not found.is_scalable:
        kind = loaded.scenario.workload.kind
        reason = f"this traffic (kind {kind}) cannot come faster or more slowly"
        raise loaded.error(("plan", "objective"), reason)
    return found


def _useful(
    candidates: Sequence[Candidate], section: MemorySection, kv: TrafficKv
) -> list[Candidate]:
    """The candidates but those that do the same with less memory."""

    def is_useless_of(one: Candidate) -> bool:
        if one.memory is None or one.token_bytes is None or one.reason is not None:
            return False
        holds_all = kv.num_bytes(one.token_bytes) * one.degrees.get("dp", 1)
        return is_useless(one.memory, section, holds_all)

    return [one for one in candidates if not is_useless_of(one)]


def _base_factor(loaded: LoadedScenario, section: PlanSection) -> float:
    """By how much the scenario's rate is multiplied, so that it is `rate_rps`."""
    if section.rate_rps is None:
        return 1.0
    workload = loaded.scenario.workload
    rate = rate_of(workload, lambda trace: read_trace(trace, loaded.base_dir))
    if rate is None:
        reason = f"the rate of this traffic (kind {workload.kind}) is not known beforehand"
        raise loaded.error(("plan", "rate_rps"), f"{reason}: leave rate_rps out")
    return section.rate_rps / rate


def _check_memory(loaded: LoadedScenario) -> None:
    """Check that nothing else says how large the memory is."""
    scheduler = loaded.scenario.scheduler
    for key in family_named(scheduler.family).host_memory_keys:
        if getattr(scheduler, key, None) is not None:
            reason = "plan.memory lists sizes: give the other keys in plan.servers"
            raise loaded.error(("scheduler", key), reason)
    if loaded.scenario.store is not None:
        raise loaded.error(("store",), "plan.memory lists sizes: give it as plan.memory.store")


def _check_keys(loaded: LoadedScenario, section: PlanSection) -> None:
    for place, settings in _settings_of(section):
        for key in settings or ():
            if key.partition(".")[0] in _NOT_SET:
                raise loaded.error(("plan", *place, key), "cannot be set by a plan")
    latency = loaded.scenario.latency
    named: list[tuple[KeyPath, str]] = [
        ((name,), name) for name in DEGREES if getattr(section, name) is not None
    ]
    for number, degrees in enumerate(section.parallel or ()):
        named += [(("parallel", number, name), name) for name in degrees]
    for place, name in named:
        if not hasattr(latency, name):
            reason = f"latency of kind {latency.kind} has no {name}"
            raise loaded.error(("plan", *place), reason)
    if isinstance(latency, RooflineLatencyConfig):
        for name in section.gpus:
            try:
                load_hardware(name)
            except InputError as error:
                raise loaded.error(("plan", "gpus", name), error.reason) from None


def _settings_of(section: PlanSection) -> list[tuple[KeyPath, Mapping[str, object] | None]]:
    """The settings of each part of the section, with the part's key path below `plan`."""
    places: list[tuple[KeyPath, Mapping[str, object] | None]] = [
        (("gpus", name, "settings"), gpu.settings) for name, gpu in section.gpus.items()
    ]
    for number, server in enumerate(section.servers):
        places.append((("servers", number, "settings"), server.settings))
        places.append((("servers", number, "grid"), server.grid))
        for gpu, settings in (server.gpu_settings or {}).items():
            places.append((("servers", number, "gpu_settings", gpu), settings))
    if section.disaggregated is not None:
        places.append((("disaggregated", "settings"), section.disaggregated.settings))
    return places

"""Turns a scenario's `plan` section into candidates: what a replica may be, each checked."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from sim.core.errors import InputError, KeyPath
from sim.latency.config import (
    AiconfiguratorLatencyConfig,
    RooflineLatencyConfig,
    parallelism,
)
from sim.latency.hardware import load_hardware
from sim.scenario.explain import ContradictionError
from sim.scenario.load import LoadedScenario
from sim.scenario.plan_section import PlanSection, ServerKind
from sim.scenario.schema import BESIDE_THE_RUN
from sim.sweep.plan import SEED, Plan, Point, Settings, canonical
from sim.workload.scale import rate_of, scaled
from sim.workload.traces.read import TraceReader, read_trace

REPLICAS = "replicas"
_DEGREES = ("tp", "dp", "moe_ep")
# Keys that the section's own keys set, or by which deployments are judged.
_NOT_SET = (*BESIDE_THE_RUN, SEED, "slo", "name", "workload", REPLICAS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What each replica of a deployment may be. The search finds how many replicas it takes.

    Attributes:
        number: from 0, in the order of the section.
        gpu: the name of the kind of GPU.
        family: the scheduler family.
        degrees: `tp`, `dp` and `moe_ep`, as far as the latency kind has them.
        tried: the values of the server's `grid`.
        settings: everything that differs from the scenario, by key path, the above included.
        num_gpus: GPUs of a replica.
        price_per_hour: price of a GPU; None: GPUs are counted.
        max_replicas: most replicas to try.
        reason: why it cannot run; None: nothing is known against it.
    """

    number: int
    gpu: str
    family: str
    degrees: Mapping[str, int]
    tried: Settings
    settings: Settings
    num_gpus: int
    price_per_hour: float | None
    max_replicas: int
    reason: str | None = None

    def cost(self, num_replicas: int) -> float:
        """The price of all GPUs per hour, or their number."""
        return num_replicas * self.num_gpus * (self.price_per_hour or 1)


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """What a search for deployments will do.

    Attributes:
        section: the scenario's `plan` section.
        plan: the scenario; points are added when they are chosen.
        candidates: what a replica may be.
        seeds: every deployment is run with each of them.
        base_factor: what the workload's own rate is multiplied by.
    """

    section: PlanSection
    plan: Plan
    candidates: tuple[Candidate, ...]
    seeds: tuple[int, ...]
    base_factor: float

    @property
    def is_scalable(self) -> bool:
        """Whether the traffic can come faster."""
        return bool(scaled(self.plan.base.scenario.workload, 1.0))

    @property
    def num_headroom_steps(self) -> int:
        """How many headrooms there are to choose from; they are `headroom_step` apart."""
        return math.ceil(self.section.max_headroom / self.section.headroom_step - 1e-9)

    def headroom(self, steps: int) -> float:
        """The share of the rate that is added with so many steps."""
        return min(steps * self.section.headroom_step, self.section.max_headroom)

    def settings(self, candidate: Candidate, num_replicas: int, headroom: float = 0.0) -> Settings:
        """The settings with which `simulate run` runs a deployment, without the seed."""
        factor = self.base_factor * (1 + headroom)
        traffic: Settings = {}
        if factor != 1:
            changes = scaled(self.plan.base.scenario.workload, factor)
            traffic = {f"workload.{key}": value for key, value in changes.items()}
        return {**candidate.settings, REPLICAS: num_replicas, **traffic}

    def points(self, settings: Settings) -> tuple[Point, ...]:
        """The points of settings, one for each seed."""
        with_seeds = [{**settings, SEED: seed} for seed in self.seeds]
        return tuple(
            Point(number, values, self.plan.vary(values).content_hash)
            for number, values in enumerate(with_seeds)
        )


def plan_capacity(loaded: LoadedScenario, *, read_trace: TraceReader = read_trace) -> CapacityPlan:
    """Check the scenario's `plan` section and list its candidates.

    Raises:
        InputError: there is no such section or no SLO; a key path does not exist, has a wrong
            value, or cannot be set; the traffic has no rate that could be scaled. The message names
            the file, the line and the key path.
    """
    section = loaded.scenario.plan
    if section is None:
        raise loaded.error((), "has no plan section")
    if not loaded.scenario.slo.model_dump(exclude_none=True):
        raise loaded.error(("plan", "min_slo_attainment"), "needs an slo section with a limit")
    seeds = section.seeds or (loaded.scenario.seed,)
    for number, seed in enumerate(seeds):
        if seed in seeds[:number]:
            raise loaded.error(("plan", "seeds", number), f"{seed} is given twice")
    _check_keys(loaded, section)
    plan = Plan(loaded, (), (), "plan")
    candidates = tuple(_candidates(plan, section))
    return CapacityPlan(section, plan, candidates, seeds, _base_factor(loaded, section, read_trace))


def _base_factor(loaded: LoadedScenario, section: PlanSection, read_trace: TraceReader) -> float:
    if section.rate_rps is None:
        return 1.0
    workload = loaded.scenario.workload
    rate = rate_of(workload, lambda trace: read_trace(trace, loaded.base_dir))
    if rate is None:
        reason = f"the rate of this traffic (kind {workload.kind}) is not known beforehand"
        raise loaded.error(("plan", "rate_rps"), f"{reason}: leave rate_rps out")
    return section.rate_rps / rate


def _check_keys(loaded: LoadedScenario, section: PlanSection) -> None:
    places: list[tuple[KeyPath, Mapping[str, object] | None]] = [
        (("gpus", name, "settings"), gpu.settings) for name, gpu in section.gpus.items()
    ]
    for number, server in enumerate(section.servers):
        places.append((("servers", number, "settings"), server.settings))
        places.append((("servers", number, "grid"), server.grid))
    for place, settings in places:
        for key in settings or ():
            if key.partition(".")[0] in _NOT_SET:
                raise loaded.error(("plan", *place, key), "cannot be set by a plan")
    latency = loaded.scenario.latency
    for name in _DEGREES:
        if getattr(section, name) is not None and not hasattr(latency, name):
            raise loaded.error(("plan", name), f"latency of kind {latency.kind} has no {name}")
    if isinstance(latency, RooflineLatencyConfig):
        for name in section.gpus:
            try:
                load_hardware(name)
            except InputError as error:
                raise loaded.error(("plan", "gpus", name), error.reason) from None


def _candidates(plan: Plan, section: PlanSection) -> Iterator[Candidate]:
    degrees = [
        [(name, degree) for degree in listed]
        for name in _DEGREES
        if (listed := getattr(section, name)) is not None
    ]
    choices = product(
        section.gpus, product(*degrees), [one for kind in section.servers for one in _grid(kind)]
    )
    for number, (gpu, chosen, (kind, tried)) in enumerate(choices):
        yield _candidate(plan, section, number, gpu, dict(chosen), kind, tried)


def _grid(kind: ServerKind) -> Iterator[tuple[ServerKind, Settings]]:
    grid = kind.grid or {}
    for values in product(*grid.values()):
        yield kind, dict(zip(grid, values, strict=True))


def _candidate(
    plan: Plan,
    section: PlanSection,
    number: int,
    gpu: str,
    chosen: Mapping[str, int],
    kind: ServerKind,
    tried: Settings,
) -> Candidate:
    scenario, described = plan.base.scenario, section.gpus[gpu]
    own = {name: getattr(scenario.latency, name, None) for name in _DEGREES}
    degrees = {name: value for name, value in (own | dict(chosen)).items() if value is not None}
    family = kind.family or scenario.scheduler.family
    settings: Settings = {
        **_gpu_settings(plan.base, gpu),
        **(described.settings or {}),
        **_family_settings(plan.base, family),
        **(kind.settings or {}),
        **{f"latency.{name}": value for name, value in chosen.items()},
        **tried,
    }
    num_gpus = degrees.get("tp", 1) * degrees.get("dp", 1)
    reason = None
    try:
        varied = plan.vary({**settings, REPLICAS: 1})
    except ContradictionError as error:
        reason = reason_of(plan, str(error))
    else:
        # Settings of the GPU or the server may have changed the degrees.
        latency = varied.scenario.latency
        degrees = {name: getattr(latency, name) for name in _DEGREES if hasattr(latency, name)}
        spread = parallelism(latency)
        num_gpus = spread.tp * spread.dp
    affordable = section.max_replicas
    if section.max_gpus is not None:
        affordable = min(affordable, section.max_gpus // num_gpus)
    if not affordable:
        reason = reason or f"a replica has {num_gpus} GPUs, more than max_gpus {section.max_gpus}"
    return Candidate(
        number=number,
        gpu=gpu,
        family=family,
        degrees=degrees,
        tried=tried,
        settings=settings,
        num_gpus=num_gpus,
        price_per_hour=described.price_per_hour,
        max_replicas=affordable,
        reason=reason,
    )


def _gpu_settings(loaded: LoadedScenario, gpu: str) -> Settings:
    match loaded.scenario.latency:
        case AiconfiguratorLatencyConfig():
            # A name in `hardware` would be that of another GPU.
            named = {} if loaded.scenario.hardware is None else {"hardware": None}
            return {"latency.system": gpu, **named}
        case RooflineLatencyConfig():
            return {"hardware": gpu}
        case _:
            return {}


def _family_settings(loaded: LoadedScenario, family: str) -> Settings:
    if family == loaded.scenario.scheduler.family:
        return {}
    settings: Settings = {"scheduler": {"family": family}}
    if isinstance(loaded.scenario.latency, AiconfiguratorLatencyConfig):
        settings = {**settings, "latency.backend": family, "latency.version": None}
    return settings


def reason_of(plan: Plan, message: str) -> str:
    """An error's message without the place in the file, which is the same for all candidates."""
    return re.sub(rf"^{re.escape(str(plan.base.path))}:\d+: (plan: )?", "", message)


def in_words(candidate: Candidate) -> str:
    """`h100_sxm, tp 4, sglang, chunked_prefill_size 8192`."""
    degrees = [f"{name} {value}" for name, value in candidate.degrees.items() if value != 1]
    tried = [
        f"{key.rpartition('.')[2]} {canonical(value)}" for key, value in candidate.tried.items()
    ]
    return ", ".join([candidate.gpu, *degrees, candidate.family, *tried])

"""Lists the candidates of a search for deployments: what each replica may be, each checked."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod

from sim.latency.config import AiconfiguratorLatencyConfig, RooflineLatencyConfig, parallelism
from sim.scenario.explain import ContradictionError
from sim.scenario.load import LoadedScenario
from sim.scenario.plan_section import PlanSection, ServerKind
from sim.sweep.plan import Plan, Settings, canonical

REPLICAS = "replicas"
DEGREES = ("tp", "dp", "pp", "moe_ep")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What each replica of a deployment may be. The search finds how many replicas it takes.

    Attributes:
        number: from 0, in the order of the section.
        gpu: the name of the kind of GPU.
        family: the scheduler family.
        degrees: `tp`, `dp`, `pp` and `moe_ep`, as far as the latency kind has them.
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


def candidates_of(plan: Plan, section: PlanSection) -> Iterator[Candidate]:
    """Every combination of GPU, degrees, server and settings.

    Raises:
        InputError: a key path does not exist or has a wrong value. Values that only contradict
            each other make a candidate with a reason.
    """
    degrees = [
        [(name, degree) for degree in listed]
        for name in DEGREES
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
    own = {name: getattr(scenario.latency, name, None) for name in DEGREES}
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
    num_gpus = prod(degrees.get(name, 1) for name in ("tp", "dp", "pp"))
    reason = None
    try:
        varied = plan.vary({**settings, REPLICAS: 1})
    except ContradictionError as error:
        reason = reason_of(plan, str(error))
    else:
        # Settings of the GPU or the server may have changed the degrees.
        latency = varied.scenario.latency
        degrees = {name: getattr(latency, name) for name in DEGREES if hasattr(latency, name)}
        num_gpus = parallelism(latency).num_gpus
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
    place = rf"{re.escape(str(plan.base.path))}:\d+"
    return re.sub(rf"^(.*?: plan: |{place}: )", "", message)


def in_words(candidate: Candidate) -> str:
    """`h100_sxm, tp 4, sglang, chunked_prefill_size 8192`."""
    degrees = [f"{name} {value}" for name, value in candidate.degrees.items() if value != 1]
    tried = [
        f"{key.rpartition('.')[2]} {canonical(value)}" for key, value in candidate.tried.items()
    ]
    return ", ".join([candidate.gpu, *degrees, candidate.family, *tried])

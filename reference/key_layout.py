"""Which page of the reference describes which section of a scenario, and in which order."""

from collections.abc import Iterator
from typing import NamedTuple, get_args

from pydantic import BaseModel

from sim.families import FAMILIES
from sim.family.store_section import StoreSection
from sim.latency.config import LatencyConfig, QuantizationConfig
from sim.latency.host import HostSection
from sim.scenario.acceptance_section import AcceptanceSection
from sim.scenario.autoscale_section import (
    AutoscaleSection,
    GrowthSection,
    RuleConfig,
    ShrinkageSection,
    TimetableStep,
)
from sim.scenario.contest_section import ContestSection, TrafficSection
from sim.scenario.fitted_section import FittedSection
from sim.scenario.report_section import Plot, ReportSection
from sim.scenario.router_section import RouterConfig
from sim.scenario.schema import EdgeSection, Scenario, SloSection
from sim.scenario.search_sections import (
    DisaggregatedSection,
    Draw,
    GpuKind,
    IntRange,
    MemorySection,
    PlanSection,
    RandomSection,
    ServerKind,
    SweepSection,
    TuneSection,
    UniformRange,
)
from sim.scenario.servers_section import PoolSection, TransferSection
from sim.user.objects import UserClass
from sim.workload.arrivals import Arrivals, ThinkTime
from sim.workload.config import (
    Compaction,
    GiveUp,
    MixPart,
    SubAgents,
    SystemPrompts,
    WorkloadConfig,
)
from sim.workload.lengths import LengthDistribution, OutputFactor, PredictedOutput, Prefixes


class Section(NamedTuple):
    """A section of a scenario: its title, and its models (one for each kind, if it has kinds)."""

    title: str
    models: tuple[type[BaseModel], ...]


class KeyPage(NamedTuple):
    """A page; `name` is that of its file in docs/reference/keys, without `.md`."""

    name: str
    title: str
    sections: tuple[Section, ...]


def _section(title: str, annotation: object) -> Section:
    return Section(title, tuple(_models(annotation)))


def _models(annotation: object) -> list[type[BaseModel]]:
    """The models of a type: itself, or the arms of an annotated union; none for users' classes."""
    if annotation is UserClass:
        return []
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def _family_page(name: str) -> KeyPage:
    """The page of a family's scheduler section, followed by the sections inside it."""
    title = f"scheduler, family {name}"
    model = FAMILIES[name].section()
    sections = (Section(title, (model,)), *_inside(model, ""))
    return KeyPage(f"scheduler-{name}", f"Keys of {title}", sections)


def _inside(model: type[BaseModel], title: str) -> Iterator[Section]:
    """The sections inside a section, and those inside of them."""
    for key, field in model.model_fields.items():
        # A store is described once, with the keys of a scenario.
        models = [each for each in _models(field.annotation) if each is not StoreSection]
        if models:
            name = f"{title} {key.replace('_', ' ')}".strip()
            yield Section(name, tuple(models))
            for each in models:
                yield from _inside(each, name)


PAGES = (
    KeyPage(
        "scenario",
        "Keys of a scenario",
        (
            _section("scenario", Scenario),
            _section("acceptance", AcceptanceSection),
            _section("pools", PoolSection),
            _section("transfer", TransferSection),
            _section("store", StoreSection),
            _section("slo", SloSection),
            _section("edge", EdgeSection),
        ),
    ),
    KeyPage(
        "workload",
        "Keys of workload",
        (
            _section("workload", WorkloadConfig),
            _section("part", MixPart),
            _section("arrivals", Arrivals),
            _section("think time", ThinkTime),
            _section("length", LengthDistribution),
            _section("prefixes", Prefixes),
            _section("system prompts", SystemPrompts),
            _section("sub agents", SubAgents),
            _section("compaction", Compaction),
            _section("factor", OutputFactor),
            _section("predicted output", PredictedOutput),
            _section("give up", GiveUp),
        ),
    ),
    KeyPage(
        "latency",
        "Keys of latency and host",
        (
            _section("latency", LatencyConfig),
            _section("quantization", QuantizationConfig),
            _section("host", HostSection),
        ),
    ),
    *map(_family_page, FAMILIES),
    KeyPage("router", "Keys of router", (_section("router", RouterConfig),)),
    KeyPage("fitted", "Keys of fitted", (_section("fitted", FittedSection),)),
    KeyPage(
        "autoscale",
        "Keys of autoscale",
        (
            _section("autoscale", AutoscaleSection),
            _section("rule", RuleConfig),
            _section("step of a timetable", TimetableStep),
            _section("grow", GrowthSection),
            _section("shrink", ShrinkageSection),
        ),
    ),
    KeyPage(
        "sweep",
        "Keys of sweep",
        (
            _section("sweep", SweepSection),
            _section("random", RandomSection),
            _section("draw", Draw),
        ),
    ),
    KeyPage(
        "report",
        "Keys of report",
        (_section("report", ReportSection), _section("plot", Plot)),
    ),
    KeyPage(
        "tune",
        "Keys of tune",
        (
            _section("tune", TuneSection),
            Section("range", (UniformRange, IntRange)),
        ),
    ),
    KeyPage(
        "plan",
        "Keys of plan",
        (
            _section("plan", PlanSection),
            _section("GPU", GpuKind),
            _section("server", ServerKind),
            _section("plan.disaggregated", DisaggregatedSection),
            _section("plan.memory", MemorySection),
        ),
    ),
    KeyPage(
        "contest",
        "Keys of contest",
        (_section("contest", ContestSection), _section("traffic", TrafficSection)),
    ),
)

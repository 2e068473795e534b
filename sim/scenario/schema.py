"""What a scenario file may say. docs/reference/scenario.md explains every key."""

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from sim.core.units import NS_PER_S
from sim.families import DEFAULT_FAMILY, FAMILIES
from sim.family.section import ServerSection
from sim.family.store_section import Store
from sim.family.user_family import OrUserFamily
from sim.latency.config import LatencyConfig
from sim.latency.host import HostSection, host_preset
from sim.metrics.series import Edge
from sim.scenario.router_section import RoundRobinConfig, RouterConfig
from sim.scenario.servers_section import Pools, TransferSection
from sim.validation import KeysError, StrictModel, lazy_schema, whole_schema
from sim.workload import MAX_REQUESTS
from sim.workload.config import WorkloadConfig


class EdgeSection(StrictModel):
    """A time, or a number of requests, at one end of a run."""

    duration_s: Annotated[float, Field(ge=0, le=1e9)] | None = None
    """This long: of a warm-up from the first arrival on, of a cool-down up to the last one. Unit:
    s."""
    requests: Annotated[int, Field(ge=0, le=MAX_REQUESTS)] | None = None
    """Number of requests: those that arrive first, or last. Unit: requests."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.duration_s is None) == (self.requests is None):
            raise KeysError("give either duration_s or requests", "duration_s", "requests")
        return self

    def edge(self) -> Edge:
        """The same for `sim.metrics`."""
        if self.duration_s is None:
            return Edge(num_requests=self.requests)
        return Edge(duration_ns=round(self.duration_s * NS_PER_S))


class LazySection(NamedTuple):
    """Annotates a field whose model, `name` of `module`, is imported when a value is validated.

    Errors are the same as if the field were annotated with the model itself.
    """

    module: str
    name: str

    def model(self) -> type[BaseModel]:
        found: type[BaseModel] = getattr(import_module(self.module), self.name)
        return found

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return lazy_schema(self.model, self.name)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(whole_schema(self.model()))


if TYPE_CHECKING:
    from sim.scenario.acceptance_section import AcceptanceSection
    from sim.scenario.autoscale_section import AutoscaleSection
    from sim.scenario.contest_section import ContestSection
    from sim.scenario.fitted_section import FittedSection
    from sim.scenario.report_section import ReportSection
    from sim.scenario.search_sections import PlanSection, SweepSection, TuneSection
else:
    AcceptanceSection = Annotated[
        Any, LazySection("sim.scenario.acceptance_section", "AcceptanceSection")
    ]
    AutoscaleSection = Annotated[
        Any, LazySection("sim.scenario.autoscale_section", "AutoscaleSection")
    ]
    ContestSection = Annotated[Any, LazySection("sim.scenario.contest_section", "ContestSection")]
    FittedSection = Annotated[Any, LazySection("sim.scenario.fitted_section", "FittedSection")]
    PlanSection = Annotated[Any, LazySection("sim.scenario.search_sections", "PlanSection")]
    ReportSection = Annotated[Any, LazySection("sim.scenario.report_section", "ReportSection")]
    SweepSection = Annotated[Any, LazySection("sim.scenario.search_sections", "SweepSection")]
    TuneSection = Annotated[Any, LazySection("sim.scenario.search_sections", "TuneSection")]

_MAX_NAME = 100


def _check_name(name: str) -> str:
    if not name.isprintable() or "/" in name or "\\" in name:
        raise ValueError("must be printable and without slashes: it names files")
    if len(name) > _MAX_NAME:
        raise ValueError(f"must have at most {_MAX_NAME} characters, got {len(name)}")
    return name


Name = Annotated[str, Field(min_length=1), AfterValidator(_check_name)]
NonEmpty = Annotated[str, Field(min_length=1)]
Milliseconds = Annotated[float, Field(gt=0)]


def _host_of(value: Any) -> Any:
    """The section that a preset's name means, or one with `preset` and keys that replace its."""
    if isinstance(value, dict) and isinstance(value.get("preset"), str):
        replacing = {key: part for key, part in value.items() if key != "preset"}
        return host_preset(value["preset"]).model_dump(exclude_defaults=True) | replacing
    return host_preset(value) if isinstance(value, str) else value


Host = Annotated[HostSection, BeforeValidator(_host_of)]


def _family_of(section: Any) -> str:
    """The name of the family whose section this is; it may be data or a validated section."""
    if isinstance(section, dict):
        return str(section.get("family", DEFAULT_FAMILY))
    return str(getattr(section, "family", DEFAULT_FAMILY))


def _by_family(sections: dict[str, CoreSchema]) -> CoreSchema:
    return core_schema.tagged_union_schema(
        sections,
        _family_of,
        # The error that pydantic raises if the discriminator is the name of a key.
        custom_error_type="union_tag_invalid",
        custom_error_context={
            "discriminator": "family",
            "tag": "",
            "expected_tags": ", ".join(map(repr, sections)),
        },
        serialization=core_schema.simple_ser_schema("any"),
    )


class _FamilySection:
    """Annotates the section `scheduler`: the model of the family is loaded that a value is of."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return _by_family(
            {name: lazy_schema(family.section, name) for name, family in FAMILIES.items()}
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        sections = {name: whole_schema(family.section()) for name, family in FAMILIES.items()}
        return handler(_by_family(sections))


if TYPE_CHECKING:
    SchedulerSection = ServerSection
else:
    SchedulerSection = Annotated[ServerSection, _FamilySection(), OrUserFamily()]


def _default_scheduler() -> ServerSection:
    return FAMILIES[DEFAULT_FAMILY].section()()


class SloSection(StrictModel):
    """The limits within which a request counts as good; a limit that is not given is always met."""

    ttft_ms: Milliseconds | None = None
    """Longest time to first token. Unit: ms."""
    tpot_ms: Milliseconds | None = None
    """Longest time per output token after the first. Unit: ms."""
    e2e_latency_ms: Milliseconds | None = None
    """Longest time from arrival to the last token. Unit: ms."""
    percentile: Literal[50, 90, 95, 99] = 99
    """Which percentile of each latency tables and plots hold against its limit. It changes neither
    goodput nor SLO attainment, which are about single requests."""

    @property
    def has_limit(self) -> bool:
        return not (self.ttft_ms is self.tpot_ms is self.e2e_latency_ms is None)


# Sections that do not affect a run: they say which runs to make and what to draw of the results.
BESIDE_THE_RUN = frozenset({"sweep", "report", "tune", "plan", "contest"})


class Scenario(StrictModel):
    """A whole scenario. Paths in it are relative to the folder of its file."""

    name: Name
    """Names the run's files and tables. At most 100 printable characters, no slashes."""
    seed: int = Field(default=0, ge=0)
    """Seed of every random draw of the workload. At most 2**63 - 1."""
    model: NonEmpty | None = None
    """The served model: a Hugging Face id such as `Qwen/Qwen3-30B-A3B`, a name of the table of
    shapes (docs/explanation/latency.md#model-shapes), or the path of a `config.json` or of its
    folder. A roofline and a derived pool size need it."""
    hardware: NonEmpty | None = None
    """The accelerator, as docs/explanation/latency.md#hardware calls it: `h200-sxm`, `b200-sxm`,
    `l40s`, ... A roofline and a derived pool size need it."""
    latency: LatencyConfig
    """How long a step takes: a section of one of the kinds, or `module:Class`
    (docs/how-to/plug-in.md#latency)."""
    host: Host | None = None
    """What the host of a server adds to requests and steps: the name of a preset, such as
    `sglang-0.5`; a section; or a section with `preset: NAME`, whose other keys replace the
    preset's. Without it: nothing."""
    workload: WorkloadConfig
    """The traffic: which requests the server gets, and when. A section of one of the kinds, or
    `module:Class` (docs/how-to/plug-in.md#workload)."""
    scheduler: SchedulerSection = Field(default_factory=_default_scheduler)
    """Settings of every replica's scheduler. Its keys depend on its `family`, which may be
    `module:Class` (docs/how-to/plug-in.md#family)."""
    store: Store | None = None
    """A store of KV below the servers' host memory: the name of a preset, such as `nvme`; a
    section; or a section with `preset: NAME`, whose other keys replace the preset's. It goes
    together with `scheduler.host_cache.storage`."""
    acceptance: AcceptanceSection | None = None
    """How many draft tokens are accepted. Required with speculative decoding, and not used without
    it."""
    replicas: int = Field(default=1, ge=1, le=4096)
    """Number of identical servers; with `autoscale`, those at the beginning. Unit: servers."""
    autoscale: AutoscaleSection | None = None
    """A rule by which the number of replicas follows the load (docs/how-to/autoscale.md). Without
    it: the number stays."""
    router: RouterConfig = RoundRobinConfig(kind="round-robin")
    """Which replica a request goes to. A name alone means a section of that kind: `router:
    least-loaded` is `router: {kind: least-loaded}`. Or `module:Class`
    (docs/how-to/plug-in.md#router)."""
    pools: Pools | None = None
    """Servers of several kinds by name, in the place of `replicas`: prefill servers and decode
    servers, or servers of different hardware (docs/explanation/disaggregation.md). The keys above
    say what all pools share."""
    transfer: TransferSection | None = None
    """How KV gets from prefill servers to decode servers. Required with them, and not used without
    them."""
    fitted: FittedSection | None = None
    """What `calibrate fit` fitted the step times to, and how far off they are: it decides how far
    to believe the answer, and nothing else (docs/explanation/confidence.md)."""
    slo: SloSection = SloSection()
    """What a request must meet to count as good."""
    warmup: EdgeSection | None = None
    """The beginning of the run, which no metric counts. Without it: nothing is left out."""
    cooldown: EdgeSection | None = None
    """The end of the run, which no metric counts. Without it: nothing is left out."""
    sweep: SweepSection | None = None
    """Values to try for keys of this scenario. Only `simulate sweep` reads it."""
    report: ReportSection | None = None
    """What to draw of the sweep. Only `simulate report` reads it."""
    tune: TuneSection | None = None
    """Ranges to search for the best settings. Only `simulate tune` reads it."""
    plan: PlanSection | None = None
    """GPUs and parallelism to choose from. Only `simulate plan` reads it."""
    contest: ContestSection | None = None
    """Schedulers that compete, and the traffic. Only `simulate contest` reads it."""

    @model_validator(mode="after")
    def _check_servers(self) -> Self:
        """Check what servers without pools need; that of pools is checked pool by pool."""
        if self.pools is not None:
            return self
        knows_gpu = self.hardware is not None or self.latency.kind == "aiconfigurator"
        derivable = self.model is not None and knows_gpu
        if self.scheduler.pool_tokens is None and not derivable:
            raise KeysError(
                f"scheduler.{self.scheduler.pool_key} is required: it can be derived only from"
                " model and hardware together",
                "scheduler",
                "model",
                "hardware",
            )
        self.scheduler.check_model(is_known=self.model is not None)
        if self.scheduler.uses_store != (self.store is not None):
            raise KeysError(
                f"store and scheduler.{self.scheduler.store_key} need each other",
                "store",
                "scheduler",
            )
        if self.transfer is not None:
            raise KeysError("transfer needs pools of prefill and decode servers", "transfer")
        if self.scheduler.drafts is not None and self.acceptance is None:
            raise KeysError(
                "acceptance is required with speculative decoding", "acceptance", "scheduler"
            )
        return self

    @model_validator(mode="after")
    def _check_autoscale(self) -> Self:
        section = self.autoscale
        if section is None:
            return self
        if not section.min_replicas <= self.replicas <= section.max_replicas:
            raise KeysError(
                f"replicas {self.replicas} must be from autoscale.min_replicas"
                f" {section.min_replicas} to autoscale.max_replicas {section.max_replicas}",
                "replicas",
                "autoscale",
            )
        if self.router.kind in ("kv-aware", "scored"):
            what = f"router {self.router.kind} does not go with autoscale"
            raise KeysError(what, "router", "autoscale")
        if section.rule.kind == "slo" and self.slo.ttft_ms is self.slo.tpot_ms is None:
            raise KeysError(
                "autoscale.rule of kind slo needs slo.ttft_ms or slo.tpot_ms", "autoscale", "slo"
            )
        return self

    @property
    def most_replicas(self) -> int:
        return self.replicas if self.autoscale is None else self.autoscale.max_replicas

"""Sections that say which runs to make of a scenario: `sweep`, `tune` and `plan`."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from sim.families import FAMILIES
from sim.family.store_section import Store
from sim.latency.config import NumGpus
from sim.validation import ByKind, KeysError, StrictModel
from sim.workload import MAX_RATE_RPS

Choices = Annotated[tuple[Any, ...], Field(strict=False, min_length=1)]
Seed = Annotated[int, Field(ge=0)]
_Price = Annotated[float, Field(ge=0, le=1e9)]


class MemorySection(StrictModel):
    """Host memory and stores that are tried, and what they cost. All GPUs need a price, too.

    docs/how-to/memory.md explains it.
    """

    dram_gb: Annotated[
        tuple[Annotated[float, Field(ge=0, le=10**6)], ...], Field(strict=False, min_length=1)
    ] = (0.0,)
    """Sizes of host memory for KV to try, those of a server; its GPUs, or ranks, have equal parts.
    0: none. Unit: GB, that is 10**9 bytes."""
    dram_price_per_gb_hour: _Price | None = None
    """Price of a GB of host memory for an hour. Required if there is any in `dram_gb`. Unit:
    money."""
    store_tb: Annotated[
        tuple[Annotated[float, Field(ge=0, le=10**6)], ...], Field(strict=False, min_length=1)
    ] = (0.0,)
    """Sizes of the store below host memory to try: those of a server's own, or of all servers' if
    it is shared. 0: none. Unit: TB, that is 10**12 bytes."""
    store_price_per_tb_hour: _Price | None = None
    """Price of a TB of the store for an hour. Required if there is any in `store_tb`. Unit:
    money."""
    store: Store | None = None
    """The store, as in the scenario's `store`, without a size. Required if there is any in
    `store_tb`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in ("dram_gb", "store_tb"):
            sizes = getattr(self, name)
            if len(set(sizes)) < len(sizes):
                raise KeysError(f"{name} has a size twice", name)
        prices = (
            ("dram_gb", "dram_price_per_gb_hour"),
            ("store_tb", "store_price_per_tb_hour"),
            ("store_tb", "store"),
        )
        for name, needed in prices:
            if any(getattr(self, name)) and getattr(self, needed) is None:
                raise KeysError(f"{name} needs {needed}", name)
        if self.store is not None and self.store.has_capacity:
            raise KeysError("store has no size here: store_tb lists the sizes to try", "store")
        return self


class _Range(StrictModel):
    if TYPE_CHECKING:
        # Fields of the subclasses, whole numbers or not.

        @property
        def min(self) -> float: ...
        @property
        def max(self) -> float: ...

    @model_validator(mode="after")
    def _min_is_not_above_max(self) -> Self:
        if self.max < self.min:
            raise KeysError(f"max must be at least min, got {self.min} to {self.max}", "max", "min")
        return self


class UniformDraw(_Range):
    """Any number of a range, all equally likely."""

    kind: Literal["uniform"]
    min: float
    """The smallest value."""
    max: float
    """The largest value. At least `min`."""


class LogUniformDraw(_Range):
    """A number of a range. Every factor is equally likely: 1 to 10 as likely as 10 to 100."""

    kind: Literal["loguniform"]
    min: Annotated[float, Field(gt=0)]
    """The smallest value."""
    max: Annotated[float, Field(gt=0)]
    """The largest value. At least `min`."""


class IntDraw(_Range):
    """A whole number of a range, all equally likely."""

    kind: Literal["int"]
    min: int
    """The smallest value."""
    max: int
    """The largest value. At least `min`."""


class ChoiceDraw(StrictModel):
    """One of a list of values, all equally likely."""

    kind: Literal["choice"]
    values: Choices
    """The values."""


Draw = Annotated[UniformDraw | LogUniformDraw | IntDraw | ChoiceDraw, ByKind()]


class RandomSection(StrictModel):
    """Settings that are drawn at random."""

    num_points: Annotated[int, Field(ge=1, le=10**5)]
    """How many settings are drawn. Unit: settings."""
    seed: Seed = 0
    """Seed of these draws. It is independent of the scenario's `seed`. At most 2**63 - 1."""
    draw: Annotated[dict[str, Draw], Field(min_length=1)]
    """How the value of each key path is drawn."""


class SweepSection(StrictModel):
    """Which keys take which values.

    Any other key than these four is a key path with its list of values, as in `grid`.
    docs/how-to/sweep.md explains sweeps.
    """

    # Extra keys are key paths. They are checked against the scenario later.
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Choices] = Field(init=False)

    grid: Annotated[dict[str, Choices], Field(min_length=1)] | None = None
    """Every combination of the listed values is a setting."""
    points: (
        Annotated[
            tuple[Annotated[dict[str, Any], Field(min_length=1)], ...],
            Field(strict=False, min_length=1),
        ]
        | None
    ) = Field(default=None, alias="list")
    """Each mapping is a setting."""
    random: RandomSection | None = None
    """Settings that are drawn at random."""
    seeds: Annotated[tuple[Seed, ...], Field(strict=False, min_length=1)] | None = None
    """Every setting is run with each of these as `seed`. Without it: with the scenario's own
    seed only."""

    @model_validator(mode="after")
    def _has_something(self) -> Self:
        if not self.__pydantic_extra__ and not self.model_fields_set:
            raise ValueError("is empty: it needs key paths with lists of values, or seeds")
        return self


Share = Annotated[float, Field(gt=0, le=1)]
Limit = Annotated[float, Field(gt=0)]


class UniformRange(UniformDraw):
    """Any number of a range, or one of evenly spaced numbers."""

    step: Annotated[float, Field(gt=0)] | None = None
    """Only `min`, `min` + `step`, `min` + 2 x `step` and so on. Without it: any number."""


class IntRange(IntDraw):
    """Whole numbers of a range, evenly spaced."""

    step: Annotated[int, Field(ge=1)] = 1
    """Only `min`, `min` + `step`, `min` + 2 x `step` and so on."""


Range = Annotated[UniformRange | LogUniformDraw | IntRange | ChoiceDraw, ByKind()]


JudgedBy = Literal["simulated", "expected", "upper_end"]


class JudgedSection(StrictModel):
    """A search whose settings must keep the SLO."""

    judged_by: JudgedBy = "expected"
    """Which latencies must keep the SLO: those `simulated`; those `expected` of real servers, where
    servers with the same model, GPU and engine version were measured; or those at the `upper_end`
    of the 90 % intervals, so that nine of ten such servers keep it. Where nothing is expected, or
    there is no interval: those simulated; but with `upper_end` a server that cannot keep up with
    the requests keeps the SLO for none."""


class TuneSection(JudgedSection):
    """A search for the best values of some keys. docs/how-to/tune.md explains it."""

    objective: Literal["goodput", "cost"]
    """`goodput`: the most requests/s within the SLO. `cost`: the least cost that meets the SLO."""
    ranges: Annotated[dict[str, Range], Field(min_length=1)]
    """For each key path, the values that may be tried. Kinds `uniform` and `int` are described
    under *range*, kinds `loguniform` and `choice` under *draw*."""
    num_trials: Annotated[int, Field(ge=1, le=10**4)]
    """How many settings are tried. The scenario's own is one of them. Unit: settings."""
    seeds: Annotated[tuple[Seed, ...], Field(strict=False, min_length=1)] | None = None
    """Every setting is run with each of these as `seed`. Without it: with the scenario's own
    seed only."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seed of the search. It is independent of the scenario's `seed`. At most 2**32 - 1."""
    batch_size: Annotated[int, Field(ge=1, le=256)] = 4
    """How many settings are chosen at once, before the results of any of them are known. The number
    of workers does not matter: results must not depend on it. Unit: settings."""
    min_slo_attainment: Share | None = None
    """Smallest share of requests that must finish within the SLO. Without it: there is no
    such condition; `cost` needs it or `constraints`. Unit: share."""
    constraints: Annotated[dict[str, Limit], Field(min_length=1)] | None = None
    """For each metric, such as `p99_ttft_ms`, the largest value that its mean over the seeds may
    have. Any metric that is better when it is lower, in its unit. Without it: no such condition."""
    price_per_hour: Annotated[float, Field(gt=0)] | None = None
    """Price of one replica; with server pools, of one GPU. Only with `cost`. Without it: replicas,
    or GPUs, are counted. Unit: money."""
    max_gpus: Annotated[int, Field(ge=1)] | None = None
    """Most GPUs of a setting, those of all its servers together. Settings with more are left out;
    with `goodput` so are those to which one more server of the ranges could be added. Without it:
    no limit. Unit: GPUs."""

    @model_validator(mode="after")
    def _check_objective(self) -> Self:
        has_condition = self.min_slo_attainment is not None or self.constraints is not None
        if self.objective == "cost" and not has_condition:
            raise KeysError(
                "objective cost needs min_slo_attainment, the least share within the SLO,"
                " or constraints",
                "objective",
                "min_slo_attainment",
            )
        if self.objective != "cost" and self.price_per_hour is not None:
            raise KeysError(
                "price_per_hour goes with objective cost", "price_per_hour", "objective"
            )
        return self


Degrees = Annotated[tuple[NumGpus, ...], Field(strict=False, min_length=1)]
DegreesOfOne = Annotated[dict[Literal["tp", "dp", "pp", "moe_ep"], NumGpus], Field(min_length=1)]
PathSettings = Annotated[dict[str, Any], Field(min_length=1)]


class GpuKind(StrictModel):
    """A kind of GPU that may be used."""

    price_per_hour: Annotated[float, Field(gt=0)] | None = None
    """Price of one GPU. All kinds have one, or none has. Without it: GPUs are counted. Unit:
    money."""
    settings: PathSettings | None = None
    """Values of other keys with this kind of GPU, by key path, for example `latency.path` of its
    profile."""


class ServerKind(StrictModel):
    """A server that may be used, and the settings of it that are tried."""

    family: str | None = None
    """Scheduler family. Another family than the scenario's starts from its own defaults, and with
    kind `aiconfigurator` has its own `latency.backend`. Without it: the scenario's server."""
    settings: PathSettings | None = None
    """Values of keys with this server, by key path, for example `host`."""
    gpu_settings: Annotated[dict[str, PathSettings], Field(min_length=1)] | None = None
    """Values of keys with this server on one kind of GPU, by the name of the GPU and key path, for
    example `scheduler.chunked_prefill_size`. They come after `settings`."""
    grid: Annotated[dict[str, Choices], Field(min_length=1)] | None = None
    """Every combination of the listed values is tried, by key path, for example
    `scheduler.chunked_prefill_size`."""

    @model_validator(mode="after")
    def _check_family(self) -> Self:
        if self.family is not None and self.family not in FAMILIES:
            raise KeysError(f"family must be {' or '.join(FAMILIES)}, got {self.family}", "family")
        return self


class DisaggregatedSection(StrictModel):
    """Prefill and decode servers that are tried beside servers that do both."""

    gpu_bandwidth_gb_s: Annotated[float, Field(ge=0.001, le=10**6)]
    """Network bandwidth of a GPU, in each direction. `transfer.bandwidth_gb_s` is that of all GPUs
    of the smaller of the two servers. Unit: GB/s, that is 10**9 bytes a second."""
    settings: PathSettings | None = None
    """Values of other keys with such servers, by key path, for example `transfer.latency_s` or
    `pools.prefill.scheduler.chunked_prefill_size`."""


class PlanSection(JudgedSection):
    """A search for the best deployments that meet the SLO. docs/how-to/plan.md explains it."""

    objective: Literal["cost", "load"] = "cost"
    """What is best: the least `cost` for the traffic, or the most `load` that `max_gpus` bear: the
    traffic comes faster or more slowly, or in closed loops more or fewer clients come."""
    min_slo_attainment: Share
    """Smallest share of requests that must finish within the SLO. Unit: share."""
    gpus: Annotated[dict[str, GpuKind], Field(min_length=1)]
    """The kinds of GPU, by name. With kind `aiconfigurator` the name is `latency.system`, with kind
    `roofline` it is `hardware`. With other kinds it is any name, and `settings` say the rest."""
    tp: Degrees | None = None
    """Degrees of tensor parallelism to try. Without it: that of `latency`. Unit: GPUs."""
    dp: Degrees | None = None
    """Degrees of attention data parallelism to try. Without it: that of `latency`. Unit: ranks."""
    pp: Degrees | None = None
    """Degrees of pipeline parallelism to try. Without it: that of `latency`. Unit: stages."""
    moe_ep: Degrees | None = None
    """Degrees of expert parallelism to try. Without it: that of `latency`. Unit: groups."""
    parallel: Annotated[tuple[DegreesOfOne, ...], Field(strict=False, min_length=1)] | None = None
    """The combinations of `tp`, `dp`, `pp` and `moe_ep` to try, such as `{dp: 8, moe_ep: 8}`; those
    that one lacks are 1. Without it: every combination of the four keys above. Unit: GPUs."""
    servers: Annotated[tuple[ServerKind, ...], Field(strict=False, min_length=1)] = (ServerKind(),)
    """The servers to try. Without it: the scenario's own, as it is."""
    disaggregated: DisaggregatedSection | None = None
    """Try disaggregated servers, too: every number of each kind, and every pair of degrees.
    Without it: only servers that do both."""
    memory: MemorySection | None = None
    """Try host memory and stores for KV, too. Without it: the scenario's own."""
    rate_rps: Annotated[float, Field(gt=0, le=MAX_RATE_RPS)] | None = None
    """The traffic is sped up or slowed down to this rate. Without it: the workload as it is. Unit:
    requests/s."""
    max_replicas: Annotated[int, Field(ge=1, le=4096)] = 16
    """Most replicas of a deployment. Unit: servers."""
    max_gpus: Annotated[int, Field(ge=1)] | None = None
    """Most GPUs of a deployment. Objective `load` needs it. Without it: no limit. Unit: GPUs."""
    max_kw: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Most power of all GPUs of a deployment, the mean over a run. Deployments whose power nobody
    measured are not left out, but named (docs/how-to/power.md). Without it: no limit. Unit: kW."""
    seeds: Annotated[tuple[Seed, ...], Field(strict=False, min_length=1)] | None = None
    """Every deployment is run with each of these as `seed`. Without it: with the scenario's own
    seed only."""
    num_shown: Annotated[int, Field(ge=1, le=100)] = 5
    """How many of the best deployments are found and shown; with `disaggregated`, of each sort.
    Unit: deployments."""
    headroom_step: Annotated[float, Field(ge=0.01, le=1)] = 0.05
    """Precision of the headroom, or with objective `load` of the load, as a share of the traffic's
    rate. Unit: share."""
    max_headroom: Annotated[float, Field(ge=0, le=10)] = 1.0
    """Largest headroom that is looked for, as a share of the traffic's rate. 0: none is looked for.
    Unit: share."""

    @model_validator(mode="after")
    def _load_is_limited(self) -> Self:
        if self.objective == "load" and self.max_gpus is None:
            raise KeysError("objective load needs max_gpus", "objective", "max_gpus")
        return self

    @model_validator(mode="after")
    def _degrees_are_given_once(self) -> Self:
        given = [name for name in ("tp", "dp", "pp", "moe_ep") if getattr(self, name) is not None]
        if self.parallel is not None and given:
            raise KeysError(f"{given[0]} does not go with parallel", given[0], "parallel")
        return self

    @model_validator(mode="after")
    def _prices_go_together(self) -> Self:
        unpriced = [name for name, kind in self.gpus.items() if kind.price_per_hour is None]
        if unpriced and len(unpriced) < len(self.gpus):
            raise KeysError(f"{unpriced[0]} has no price_per_hour, other GPUs have one", "gpus")
        if self.memory is not None and self.disaggregated is not None:
            reason = "memory is not simulated together with disaggregated"
            raise KeysError(reason, "memory", "disaggregated")
        if unpriced and self.memory is not None:
            raise KeysError(f"{unpriced[0]} has no price_per_hour, but memory has prices", "gpus")
        return self

    @model_validator(mode="after")
    def _gpus_of_servers_are_known(self) -> Self:
        named = [name for server in self.servers for name in server.gpu_settings or ()]
        for name in named:
            if name not in self.gpus:
                known = ", ".join(self.gpus)
                raise KeysError(
                    f"gpu_settings: {name} is not a GPU of the plan ({known})", "servers"
                )
        return self

"""What a scenario's `plan:` section may say: GPUs, parallelism, servers, and the SLO's share."""

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from sim.families import FAMILIES
from sim.latency.config import NumGpus
from sim.scenario.sweep_section import Choices, Seed
from sim.scenario.tune_section import Share
from sim.validation.strict_model import KeysError, StrictModel
from sim.workload.limits import MAX_RATE_RPS

Degrees = Annotated[tuple[NumGpus, ...], Field(strict=False, min_length=1)]
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
    grid: Annotated[dict[str, Choices], Field(min_length=1)] | None = None
    """Every combination of the listed values is tried, by key path, for example
    `scheduler.chunked_prefill_size`."""

    @model_validator(mode="after")
    def _check_family(self) -> Self:
        if self.family is not None and self.family not in FAMILIES:
            raise KeysError(f"family must be {' or '.join(FAMILIES)}, got {self.family}", "family")
        return self


class ApartSection(StrictModel):
    """Prefill and decode servers that are tried beside servers that do both."""

    gpu_bandwidth_gb_s: Annotated[float, Field(ge=0.001, le=10**6)]
    """Network bandwidth of a GPU, in each direction. `transfer.bandwidth_gb_s` is that of all GPUs
    of the smaller of the two servers. Unit: GB/s, that is 10**9 bytes a second."""
    settings: PathSettings | None = None
    """Values of other keys with such servers, by key path, for example `transfer.latency_s` or
    `pools.prefill.scheduler.chunked_prefill_size`."""


class PlanSection(StrictModel):
    """A search for the cheapest deployments that meet the SLO. docs/how-to/plan.md explains it."""

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
    servers: Annotated[tuple[ServerKind, ...], Field(strict=False, min_length=1)] = (ServerKind(),)
    """The servers to try. Without it: the scenario's own, as it is."""
    apart: ApartSection | None = None
    """Try prefill and decode servers apart, too: every number of each, and every pair of degrees.
    Without it: only servers that do both."""
    rate_rps: Annotated[float, Field(gt=0, le=MAX_RATE_RPS)] | None = None
    """The traffic is sped up or slowed down to this rate. Without it: the workload as it is. Unit:
    requests/s."""
    max_replicas: Annotated[int, Field(ge=1, le=4096)] = 16
    """Most replicas of a deployment. Unit: servers."""
    max_gpus: Annotated[int, Field(ge=1)] | None = None
    """Most GPUs of a deployment. Without it: no limit. Unit: GPUs."""
    seeds: Annotated[tuple[Seed, ...], Field(strict=False, min_length=1)] | None = None
    """Every deployment is run with each of these as `seed`. Without it: with the scenario's own
    seed only."""
    num_shown: Annotated[int, Field(ge=1, le=100)] = 5
    """How many of the cheapest deployments are found and shown; with `apart`, of each sort. Unit:
    deployments."""
    headroom_step: Annotated[float, Field(ge=0.01, le=1)] = 0.05
    """Precision of the headroom, as a share of the traffic's rate. Unit: share."""
    max_headroom: Annotated[float, Field(gt=0, le=10)] = 1.0
    """Largest headroom that is looked for, as a share of the traffic's rate. Unit: share."""

    @model_validator(mode="after")
    def _prices_go_together(self) -> Self:
        unpriced = [name for name, kind in self.gpus.items() if kind.price_per_hour is None]
        if unpriced and len(unpriced) < len(self.gpus):
            raise KeysError(f"{unpriced[0]} has no price_per_hour, other GPUs have one", "gpus")
        return self

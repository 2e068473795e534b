"""What a scenario's `tune:` section may say: the objective, the ranges to search, the effort."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sim.scenario.sweep_section import ChoiceDraw, IntDraw, LogUniformDraw, Seed, UniformDraw
from sim.validation.strict_model import KeysError, StrictModel

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


Range = Annotated[
    UniformRange | LogUniformDraw | IntRange | ChoiceDraw, Field(discriminator="kind")
]


class TuneSection(StrictModel):
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

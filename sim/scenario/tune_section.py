"""What a scenario's `tune:` section may say: what is sought, over which ranges, how thoroughly."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sim.scenario.sweep_section import ChoiceDraw, IntDraw, LogUniformDraw, Seed, UniformDraw
from sim.strict_model import KeysError, StrictModel

Share = Annotated[float, Field(gt=0, le=1)]


class UniformRange(UniformDraw):
    """A number between two; with a `step` only the smallest and every step after it."""

    step: Annotated[float, Field(gt=0)] | None = None


class IntRange(IntDraw):
    """Whole numbers of a range: the smallest and every step after it."""

    step: Annotated[int, Field(ge=1)] = 1


Range = Annotated[
    UniformRange | LogUniformDraw | IntRange | ChoiceDraw, Field(discriminator="kind")
]


class TuneSection(StrictModel):
    """A search for the best values of some keys.

    Attributes:
        objective: `goodput`, the most; `cost`, the least that meets the SLO.
        ranges: where to look, by key path.
        num_trials: how many settings are tried, the scenario's own among them.
        seeds: every setting is run with each of them; None: with the scenario's own.
        seed: of the search.
        batch_size: how many settings are chosen before their results are looked at. Not the number
            of workers: results must not depend on that.
        min_slo_attainment: the least share of requests within the SLO; None: any will do.
        price_per_hour: of one replica, for `cost`; None: replicas are counted.
    """

    objective: Literal["goodput", "cost"]
    ranges: Annotated[dict[str, Range], Field(min_length=1)]
    num_trials: Annotated[int, Field(ge=1, le=10**4)]
    seeds: Annotated[tuple[Seed, ...], Field(strict=False, min_length=1)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    batch_size: Annotated[int, Field(ge=1, le=256)] = 4
    min_slo_attainment: Share | None = None
    price_per_hour: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _check_objective(self) -> Self:
        if self.objective == "cost" and self.min_slo_attainment is None:
            raise KeysError(
                "objective cost needs min_slo_attainment, the least share within the SLO",
                "objective",
                "min_slo_attainment",
            )
        if self.objective != "cost" and self.price_per_hour is not None:
            raise KeysError(
                "price_per_hour goes with objective cost", "price_per_hour", "objective"
            )
        return self

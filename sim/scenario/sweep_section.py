"""What a scenario's `sweep:` section may say: which keys take which values."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from sim.validation.strict_model import KeysError, StrictModel

Choices = Annotated[tuple[Any, ...], Field(strict=False, min_length=1)]
Seed = Annotated[int, Field(ge=0)]


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


Draw = Annotated[UniformDraw | LogUniformDraw | IntDraw | ChoiceDraw, Field(discriminator="kind")]


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

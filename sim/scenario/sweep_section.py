"""What a scenario's `sweep:` section may say: which keys take which values."""

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from sim.strict_model import KeysError, StrictModel

Choices = Annotated[tuple[Any, ...], Field(strict=False, min_length=1)]
Seed = Annotated[int, Field(ge=0)]


def _check_room(low: float, high: float) -> None:
    if high < low:
        raise KeysError(f"max must be at least min, got {low} to {high}", "max", "min")


class UniformDraw(StrictModel):
    """A number anywhere between two."""

    kind: Literal["uniform"]
    min: float
    max: float

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        _check_room(self.min, self.max)
        return self


class LogUniformDraw(StrictModel):
    """A number between two, every factor alike."""

    kind: Literal["loguniform"]
    min: Annotated[float, Field(gt=0)]
    max: Annotated[float, Field(gt=0)]

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        _check_room(self.min, self.max)
        return self


class IntDraw(StrictModel):
    """Every whole number of a range alike, both ends included."""

    kind: Literal["int"]
    min: int
    max: int

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        _check_room(self.min, self.max)
        return self


class ChoiceDraw(StrictModel):
    """One of a list."""

    kind: Literal["choice"]
    values: Choices


Draw = Annotated[UniformDraw | LogUniformDraw | IntDraw | ChoiceDraw, Field(discriminator="kind")]


class RandomSection(StrictModel):
    """`num_points` random settings; `draw` says how each key path is drawn."""

    num_points: Annotated[int, Field(ge=1, le=10**5)]
    seed: Seed = 0
    draw: Annotated[dict[str, Draw], Field(min_length=1)]


class SweepSection(StrictModel):
    """Key paths and their values; any key beside the four is a key path of the grid.

    Attributes:
        grid: values by key path; every combination is a setting.
        points: settings one by one, each a mapping of key paths to values; `list` in the file.
        random: settings drawn at random.
        seeds: every setting is run with each of them.
    """

    # What is not a field of this section is a key path, checked against the scenario later.
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Choices] = Field(init=False)

    grid: Annotated[dict[str, Choices], Field(min_length=1)] | None = None
    points: (
        Annotated[
            tuple[Annotated[dict[str, Any], Field(min_length=1)], ...],
            Field(strict=False, min_length=1),
        ]
        | None
    ) = Field(default=None, alias="list")
    random: RandomSection | None = None
    seeds: Annotated[tuple[Seed, ...], Field(strict=False, min_length=1)] | None = None

    @model_validator(mode="after")
    def _has_something(self) -> Self:
        if not self.__pydantic_extra__ and not self.model_fields_set:
            raise ValueError("is empty: it needs key paths with lists of values, or seeds")
        return self

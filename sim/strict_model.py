"""The base of every configuration model: nothing unknown, nothing coerced, no NaN, frozen."""

from pydantic import BaseModel, ConfigDict


class StrictModel(BaseModel):
    """Unknown keys, wrong types and non-finite numbers are errors. Lists become tuples on demand.

    A tuple field needs `Field(strict=False)`: YAML knows only lists.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        # Validators are built for what is validated, not for each of its parts by itself.
        defer_build=True,
    )

"""The base of every configuration model: frozen, and strict about keys, types and numbers."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MAX_COUNT = 2**31 - 1
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]


class KeysError(ValueError):
    """Values of several keys of a section that do not go together; for its validators to raise."""

    def __init__(self, reason: str, *keys: str) -> None:
        """Take the reason, and the keys by name, in the order in which they are to blame."""
        super().__init__(reason)
        self.keys = keys


class StrictModel(BaseModel):
    """Unknown keys, values of a wrong type, infinities and NaN are errors.

    A tuple field needs `Field(strict=False)`, so that a list is accepted: YAML has no tuples.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        # Pydantic builds the validator of a model when it is used, not that of each of its parts.
        defer_build=True,
    )

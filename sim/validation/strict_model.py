"""The base of every configuration model: frozen, and strict about keys, types and numbers."""

from pydantic import BaseModel, ConfigDict


class KeysError(ValueError):
    """Raised by a section's validators: the values of several keys contradict each other."""

    def __init__(self, reason: str, *keys: str) -> None:
        """Take the reason and the keys; the error is shown at the first key that the file has."""
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
        # Build a validator only for models that are validated themselves, not for their parts.
        defer_build=True,
    )

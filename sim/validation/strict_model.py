"""How data from outside are checked: the base of all sections, and types of files that are read."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from sim.core.errors import InputError
from sim.core.messages import describe, dotted


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


# What was written by another version may have further keys.
OPEN = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

# Sums and differences of such times, and sums of such counts, fit 64 bits.
TimeNs = Annotated[int, Field(ge=0, le=1 << 61)]
Count = Annotated[int, Field(ge=0, le=1 << 40)]
Number = Annotated[float, Field(ge=0, le=float(1 << 61))]


def check(adapter: TypeAdapter[Any], value: object, where: str) -> None:
    """Check a value.

    Args:
        adapter: the type.
        value: as JSON has it.
        where: `file` or `file:line`, for the error.

    Raises:
        InputError: `where: key: reason`, the first key that is wrong.
    """
    try:
        adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = dotted(first["loc"])
        raise InputError(f"{where}: {f'{key}: ' if key else ''}{_reason(first)}") from None


def _reason(error: Mapping[str, Any]) -> str:
    if error["type"] == "missing":
        return "missing"
    text = str(error["msg"]).replace("Input should", "must").removeprefix("Value error, ")
    return f"{text}, got {describe(error['input'])}"

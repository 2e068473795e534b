"""All that is attacked."""

from fuzz.cases import FuzzCase, file_cases
from fuzz.combined.cases import combined_cases


def all_cases() -> list[FuzzCase]:
    """Every case."""
    return [*file_cases(), *combined_cases()]

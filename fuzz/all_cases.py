"""All that is attacked."""

from fuzz.cases import FuzzCase, file_cases
from fuzz.combined.cases import combined_cases
from fuzz.lines.full_disk import disk_cases
from fuzz.lines.words import line_cases
from fuzz.network.cases import network_cases
from fuzz.typed import typed_cases


def all_cases() -> list[FuzzCase]:
    """Every case."""
    return [
        *file_cases(),
        *combined_cases(),
        *typed_cases(),
        *network_cases(),
        *line_cases(),
        *disk_cases(),
    ]

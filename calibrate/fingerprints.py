"""Whether two logs, or a log and a profile, are of the same device, libraries and model."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class FingerprintDifference(NamedTuple):
    """The first key in which two fingerprints differ; a value is None where it is missing."""

    key: str
    ours: Any
    theirs: Any


def first_difference(
    ours: Mapping[str, Any], theirs: Mapping[str, Any]
) -> FingerprintDifference | None:
    """Compare fingerprints key by key, in their order."""
    for key in dict.fromkeys((*ours, *theirs)):
        if ours.get(key) != theirs.get(key):
            return FingerprintDifference(key, ours.get(key), theirs.get(key))
    return None

"""Why the package has no times, and for what it has some, in the words of a user."""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sim.core.errors import InputError
from sim.core.messages import one_line, unknown_name
from sim.latency.aiconfigurator.deployment import ModelDeployment

_MAX_LENGTH = 200
_MAX_NAMES = 5
_NO_ARITHMETIC = re.compile(r"needs '(\w+)_tc_flops'")
# Where a message's first sentence goes on with names of files and of the package's own parts.
_DETAILS = re.compile(r" \((?:first|or|no misc)\b.*|: tried .*")
_PATH = re.compile(r" at /[^\s;]*")
_REPEATED = re.compile(r"^(?:perf database error: )+")


def reason_of(error: Exception, system: str) -> str:
    """The first sentence of the package's message: some are pages of table keys."""
    if isinstance(error, KeyError):
        return f"its configuration lacks {error}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    lacking = _NO_ARITHMETIC.search(lines[0])
    if lacking is not None:
        return f"{system} has no arithmetic in {lacking[1]}"
    text = _REPEATED.sub("", _PATH.sub("", _DETAILS.sub("", one_line(lines[0]))))
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH].rpartition(' ')[0]} ..."


def what_there_is(deployment: ModelDeployment, matrix: Iterable[Mapping[str, str]]) -> str:
    """For a deployment without times: for what the package's table of supported ones has some."""
    num_gpus = deployment.parallelism.tp * deployment.parallelism.dp
    if num_gpus.bit_count() > 1:
        return f"messages were measured between 2, 4, 8, ... GPUs, and tp x dp is {num_gpus}"
    rows = [row for row in matrix if row["Status"] == "PASS"]
    same = [row for row in rows if row["HuggingFaceID"] == deployment.model]
    if not same and deployment.config is not None:
        classes = json.loads(deployment.config).get("architectures") or [None]
        same = [row for row in rows if row["Architecture"] == classes[0]]
    if not same:
        return f"it has none of {deployment.model} on any system"
    backend = deployment.backend
    found = {row["System"] for row in same if row["Backend"] == backend}
    if not found:
        backend = same[0]["Backend"]
        found = {row["System"] for row in same if row["Backend"] == backend}
    names = sorted(found)
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    where = ", ".join(names[:_MAX_NAMES]) + more
    return f"it has those of {deployment.model} in its own formats with {backend} on {where}"


def known_format(formats: Collection[str], kind: str, name: str) -> str:
    """The name of a number format for a kind of operator, if the package has it."""
    if name not in formats:
        reason = unknown_name("number format", name, formats)
        raise InputError(reason, key=("latency", "quantization", kind))
    return name


def known_version(perf_database: Any, system: str, backend: str, wanted_version: str | None) -> str:
    """The version to open. An error about an unknown name says which names there are."""
    versions: dict[str, str] | None = perf_database.get_version_slots(system, backend)
    if versions is None:
        supported = perf_database.get_supported_databases()
        if system not in supported:
            reason = unknown_name("system", system, supported)
            raise InputError(reason, key=("latency", "system"))
        reason = unknown_name(f"backend on {system}", backend, supported[system])
        raise InputError(reason, key=("latency", "backend"))
    if wanted_version is None:
        return versions["current"]
    if wanted_version not in versions.values():
        what = f"version of {backend} on {system}"
        reason = unknown_name(what, wanted_version, versions.values())
        raise InputError(reason, key=("latency", "version"))
    return wanted_version

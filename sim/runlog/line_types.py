"""The types of the lines of decision logs and run logs, and the one check of a line.

docs/reference/decision-log.md and docs/reference/run-log.md explain the keys. Keys that are not
here are only printed.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, Field, TypeAdapter, with_config
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from sim.core.errors import InputError, describe
from sim.validation import OPEN, Count, Number, Printable, TimeNs, check


def _writable(content: dict[str, Any]) -> dict[str, Any]:
    # A profile gets a copy. Half a surrogate pair, which JSON can have, cannot be written there.
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("must not have half a surrogate pair") from None
    return content


Name = Annotated[Printable, Field(min_length=1)]
Rid = Annotated[Printable, Field(min_length=1)]
Mode = Literal["extend", "decode", "mixed"]
# JSON has lists only. The rows of a point have no name.
PrefillRow = Annotated[tuple[str, Count, Count], Field(strict=False)]
LoadedRow = Annotated[tuple[str, Count], Field(strict=False)]

PreemptedRow = Annotated[tuple[str | None, list[str]], Field(strict=False)]


@with_config(OPEN)
class _Step(TypedDict):
    """What steps of all logs have."""

    replica: Count
    rank: NotRequired[Count]
    pool: NotRequired[Name]
    role: NotRequired[Literal["prefill", "decode", "both"]]
    t_decided_ns: TimeNs
    t_start_ns: TimeNs
    t_end_ns: TimeNs
    mode: Mode
    prefill: list[PrefillRow]
    loaded: NotRequired[list[LoadedRow]]
    host_used: NotRequired[Count]


@with_config(OPEN)
class DecidedLine(_Step):
    """A step of a decision log, or of a run log of which only the decisions are read."""

    step: NotRequired[Count]
    host_ns: NotRequired[TimeNs]
    looks_ns: NotRequired[list[TimeNs]]
    n_decode: NotRequired[Count]
    decode_crc: NotRequired[Count]
    ctx: NotRequired[Count]
    ratio: float | None
    queue: NotRequired[Count]
    running: NotRequired[Count]
    free: NotRequired[Count]
    evictable: NotRequired[Count]
    used: NotRequired[Count]
    retracted: NotRequired[list[str]]
    preempted: NotRequired[list[PreemptedRow]]
    aborted: NotRequired[list[str]]


@with_config(OPEN)
class Arrived(TypedDict):
    """A request of any log."""

    rid: Rid
    replica: Count
    rank: NotRequired[Count]
    pool: NotRequired[Name]
    role: NotRequired[Literal["prefill", "decode", "both"]]
    arrival_ns: TimeNs
    status: Literal["waiting", "running", "finished", "rejected", "aborted"]
    warm_up: NotRequired[bool]


@with_config(OPEN)
class ServedLine(Arrived):
    """A request of a decision log, or of a run log of which only the decisions are read."""

    ttft_ns: NotRequired[TimeNs | None]
    finish_ns: NotRequired[TimeNs | None]
    cached_at_admit: NotRequired[Count]
    prefill_replica: NotRequired[Count | None]
    scheduled_ns: NotRequired[TimeNs | None]
    allocated_ns: NotRequired[TimeNs | None]
    computed_ns: NotRequired[TimeNs | None]
    received_ns: NotRequired[TimeNs | None]
    sent_tokens: NotRequired[Count]


class _Measured(TypedDict):
    """What a step and a point of a run log have."""

    n_decode: Count
    ctx: Count
    padded_rows: NotRequired[Count | None]
    max_decode_ctx: NotRequired[Count | None]
    schedule_ns: NotRequired[Number]
    plan_ns: NotRequired[Number]
    launch_ns: NotRequired[Number]
    sample_ns: NotRequired[Number]
    read_back_ns: NotRequired[Number]
    idle_ns: NotRequired[Number]


@with_config(OPEN)
class Step(_Measured, _Step):
    """A step of a run log."""

    step: Count
    t_known_ns: TimeNs
    looks_ns: list[TimeNs]
    host_ns: TimeNs
    forward_ns: TimeNs
    free: Count
    evictable: Count
    used: Count
    queue: Count
    slots: NotRequired[Count]
    running: NotRequired[Count]


@with_config(OPEN)
class PointLine(_Measured):
    """A measured composition of a profile's log."""

    mode: Mode
    prefill: list[PrefillRow]
    loaded: NotRequired[list[LoadedRow]]
    forward_ns: Annotated[float, Field(ge=1, le=float(1 << 61))]
    repeats: Count


class RequestLine(Arrived):
    """A request of a run log."""

    scheduled_ns: TimeNs | None
    finish_ns: TimeNs | None
    prompt_tokens: Count
    cached_at_admit: Count
    host_cached_at_admit: NotRequired[Count]
    output_tokens: Count
    retractions: Count
    preemptions: Count
    tenant: NotRequired[Printable]
    priority: NotRequired[Annotated[int, Field(ge=-(1 << 31), le=1 << 31)]]
    aged: NotRequired[bool]
    verify_steps: NotRequired[Count]
    drafted: NotRequired[Count]
    accepted: NotRequired[Count]
    token_ns: list[TimeNs]


@with_config(OPEN)
class MetaLine(TypedDict):
    """The first line of a run log."""

    kind: Literal["meta"]
    schema: Literal[1]
    source: str
    fingerprint: Annotated[dict[str, Any], AfterValidator(_writable)]
    scenario: NotRequired[dict[str, Any]]
    scenario_hash: NotRequired[str]
    scheduler: NotRequired[dict[str, Any]]
    name: NotRequired[str]
    seed: NotRequired[Count]
    replicas: NotRequired[Count]
    ranks: NotRequired[Annotated[int, Field(ge=1, le=1 << 20)]]
    max_total_tokens: NotRequired[Count]
    host_cache_tokens: NotRequired[Count]


@with_config(OPEN)
class ReplicaChange(TypedDict):
    """A replica of a fleet that grows and shrinks changed its state, in a decision log."""

    replica: Count
    t_ns: TimeNs
    state: Literal["starting", "up", "draining", "stopped"]


_Types = Mapping[str, TypeAdapter[Any]]
DECISION_LINES: _Types = {"step": TypeAdapter(DecidedLine), "req": TypeAdapter(ServedLine)}
RUN_LINES: _Types = {
    "step": TypeAdapter(Step), "point": TypeAdapter(PointLine), "req": TypeAdapter(RequestLine),
}  # fmt: skip
FLEET_LINES: _Types = {"fleet": TypeAdapter(ReplicaChange)}
META_LINE = TypeAdapter(MetaLine)


def check_line(types: _Types, line: Mapping[str, Any], where: str) -> str:
    """Check a line of a log; returns its kind."""
    kind = line.get("kind")
    if not isinstance(kind, str) or kind not in types:
        raise InputError(f"{where}: kind: must be one of {', '.join(types)}, got {describe(kind)}")
    check(types[kind], line, where)
    if kind == "step" and line["t_end_ns"] < line["t_start_ns"]:
        raise InputError(f"{where}: t_end_ns: is before t_start_ns")
    if kind == "req" and types is RUN_LINES:
        times = [line["arrival_ns"], *line["token_ns"]]
        if times != sorted(times):
            raise InputError(f"{where}: token_ns: times must rise, from arrival_ns on")
    return kind


def check_requests(lines: Sequence[Mapping[str, Any]], path: object) -> None:
    """Check that no two requests have the same id. Raises InputError if two have."""
    seen: set[str] = set()
    for line in lines:
        if line["rid"] in seen:
            raise InputError(f"{path}: rid: {describe(line['rid'])} occurs twice")
        seen.add(line["rid"])

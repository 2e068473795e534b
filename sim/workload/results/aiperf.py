"""AIPerf's records: `profile_export.jsonl`, one JSON object for each request.

Format of AIPerf 0.13.0 and 0.1.1 (`aiperf/common/models/record_models.py`, `MetricRecordInfo`):
`metadata` with wall-clock ns; `metrics`, each with a `value` and a `unit`; and `error`. A failed
request has an `error`, no latencies, and the length of its prompt as `error_isl`. The server's
token counts (`usage_prompt_tokens`, `usage_completion_tokens`) are used if the record has them,
else the client's. The arrival is the time at which the client sent the request. Prompts are in
`inputs.json` in the same folder: a list `data` of objects with a `session_id` and a list
`payloads`. For later turns of a conversation AIPerf 0.1.1 counts only the tokens that are new.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from sim.core.errors import InputError, shorten
from sim.core.units import MAX_TIME_NS
from sim.workload import MAX_TOKENS
from sim.workload.results.bench import accepted_of
from sim.workload.results.known_prompts import (
    only_conversations,
    prompt_text,
    with_known_texts,
    with_linked_turns,
)
from sim.workload.results.model import NO_PROMPTS, ImportedRequest, ImportedRun, ServerFacts
from sim.workload.traces.files import (
    JsonObject,
    TextLine,
    parse_object,
    read_json_lines,
    read_lines,
)
from sim.workload.traces.rows import shown, whole, why_not_whole

_NO_SHARING = "prompts of different conversations are assumed to share no prefix"
_COUNTS = (
    "AIPerf counts all prompt tokens of later turns; its first versions count the new ones, and"
    " their turns cannot be linked"
)
_UNIT_NS = {
    "ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "sec": 1_000_000_000, "s": 1_000_000_000,
}  # fmt: skip


def read_aiperf(path: Path) -> ImportedRun:
    """Read all records, including those of the warm-up."""
    requests: list[ImportedRequest] = []
    turns: list[tuple[str, int]] = []
    accepted: list[float] = []
    num_warm_up = 0
    for line, row in read_json_lines(path):
        metadata = _object(line, row, "metadata")
        requests.append(_request(line, row, metadata))
        speculation = _object(line, row, "spec_decode_acceptance", empty=True)
        if (tokens := accepted_of(speculation, "mean_acceptance_length")) is not None:
            accepted.append(tokens)
        num_warm_up += metadata.get("benchmark_phase") == "warmup"
        turns.append((str(metadata.get("conversation_id")), _turn(line, metadata)))
    if not requests:
        raise InputError(f"{path}: holds no results")
    requests = only_conversations(requests, [turn for _, turn in turns])
    requests, notes = _with_prompts(path, requests, turns)
    facts = ServerFacts(tokens_at_a_time=sum(accepted) / len(accepted) if accepted else None)
    if num_warm_up:
        notes.append(f"{num_warm_up} of the requests are from the warm-up")
    return ImportedRun(requests, facts, notes=tuple(notes))


def _with_prompts(
    path: Path, requests: list[ImportedRequest], turns: list[tuple[str, int]]
) -> tuple[list[ImportedRequest], list[str]]:
    """Link turns of conversations, or add the prompts of `inputs.json`; also returns notes.

    `turns` has the conversation of each request, and the number of its turn, counted from 0.
    """
    inputs = path.with_name("inputs.json")
    if any(turn for _, turn in turns):
        linked, num_linked = with_linked_turns(requests)
        num_later = sum(turn > 0 for _, turn in turns)
        begin = f"{num_linked} of {num_later} later turns begin with the turn before and its answer"
        return linked, [f"{begin}; {_NO_SHARING}", _COUNTS]
    if not inputs.is_file():
        return requests, [NO_PROMPTS]
    conversations = [conversation for conversation, _ in turns]
    known = known_prompts(inputs, conversations, requests)
    return known, [f"prompts are those of {inputs}, cut into tokens of equal length"]


def _request(line: TextLine, row: JsonObject, metadata: JsonObject) -> ImportedRequest:
    metrics = _object(line, row, "metrics", empty=True)
    start_ns = whole(line, metadata, "request_start_ns", low=0, high=MAX_TIME_NS)
    failure = _failure(line, row, metadata)
    prompt_tokens = _count(line, metrics, "usage_prompt_tokens", "input_sequence_length")
    output_tokens = _count(line, metrics, "usage_completion_tokens", "output_sequence_length")
    latency_ns = _time_ns(line, metrics, "request_latency")
    ttft_ns = _time_ns(line, metrics, "time_to_first_token")
    if not failure:
        needed = {
            "input_sequence_length": prompt_tokens,
            "output_sequence_length": output_tokens,
            "request_latency": latency_ns,
        }
        for key, value in needed.items():
            if not value:
                raise line.error(f"metrics.{key}", "missing, or 0, in a request that did not fail")
    return ImportedRequest(
        rid=_rid(line, metadata),
        arrival_ns=start_ns,
        first_token_ns=None if ttft_ns is None else start_ns + ttft_ns,
        finish_ns=None if latency_ns is None or failure else start_ns + latency_ns,
        prompt_tokens=prompt_tokens or _count(line, metrics, "error_isl"),
        output_tokens=output_tokens,
        failure=failure,
        session=_text(metadata.get("x_correlation_id")) or _text(metadata.get("conversation_id")),
    )


def _failure(line: TextLine, row: JsonObject, metadata: JsonObject) -> str:
    if row.get("error") is not None:
        error = _object(line, row, "error")
        words = [shorten(str(error[key])) for key in ("type", "message") if error.get(key)]
        return ": ".join(words) or f"error {shorten(str(error.get('code')))}"
    return "cancelled" if metadata.get("was_cancelled") is True else ""


def _rid(line: TextLine, metadata: JsonObject) -> str:
    rid = metadata.get("x_request_id")
    if isinstance(rid, str) and rid:
        return rid
    number = whole(line, metadata, "session_num", low=0, high=MAX_TIME_NS)
    return f"{number}-{_turn(line, metadata)}"


def _turn(line: TextLine, metadata: JsonObject) -> int:
    if metadata.get("turn_index") is None:
        return 0
    return whole(line, metadata, "turn_index", low=0)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _object(line: TextLine, row: JsonObject, key: str, *, empty: bool = False) -> JsonObject:
    value = row.get(key)
    if value is None and empty:
        return {}
    if not isinstance(value, dict):
        raise line.error(key, "missing" if value is None else f"{shown(value)} is not an object")
    return value


def _metric(line: TextLine, metrics: JsonObject, key: str) -> tuple[object, str] | None:
    metric = metrics.get(key)
    if metric is None:
        return None
    if not isinstance(metric, Mapping) or not {"value", "unit"} <= metric.keys():
        raise line.error(f"metrics.{key}", f"{shown(metric)} is not a value with a unit")
    return metric["value"], str(metric["unit"])


def _count(line: TextLine, metrics: JsonObject, *keys: str) -> int | None:
    """The token count of the first of these metrics that the record has; None if it has none."""
    for key in keys:
        metric = _metric(line, metrics, key)
        if metric is None:
            continue
        value, unit = metric
        if unit != "tokens":
            raise line.error(f"metrics.{key}", f"its unit is {shown(unit)}, not tokens")
        if type(value) is not int or not 0 <= value <= MAX_TOKENS:
            raise line.error(f"metrics.{key}", why_not_whole(value, 0, MAX_TOKENS))
        return value
    return None


def _time_ns(line: TextLine, metrics: JsonObject, key: str) -> int | None:
    metric = _metric(line, metrics, key)
    if metric is None:
        return None
    value, unit = metric
    if unit not in _UNIT_NS:
        raise line.error(
            f"metrics.{key}", f"its unit {shown(unit)} is none of {', '.join(_UNIT_NS)}"
        )
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or value < 0:
        raise line.error(f"metrics.{key}", f"{shown(value)} is not a time")
    if value > MAX_TIME_NS // _UNIT_NS[unit]:
        raise line.error(f"metrics.{key}", f"{shown(value)} {unit} is beyond the clock")
    return round(value * _UNIT_NS[unit])


def known_prompts(
    path: Path, conversations: Sequence[str], requests: Sequence[ImportedRequest]
) -> list[ImportedRequest]:
    """Give each request stand-in tokens made from its prompt. Each conversation has one turn."""
    prompts = _prompts(path)
    for conversation, request in zip(conversations, requests, strict=True):
        if conversation not in prompts:
            raise InputError(
                f"{path}: data: no session_id {shown(conversation)}, which request"
                f" {request.rid} belongs to"
            )
    return with_known_texts(requests, [prompts[conversation] for conversation in conversations])


def _prompts(path: Path) -> dict[str, str]:
    """The text of the first payload of every conversation."""
    document = TextLine(str(path), 1, "\n".join(line.text for line in read_lines(path)))
    entries = parse_object(document).get("data")
    if not isinstance(entries, list):
        raise document.error("data", f"{shown(entries)} is not a list")
    prompts = {}
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("session_id"), str):
            raise document.error(f"data[{index}].session_id", "missing")
        payloads = entry.get("payloads")
        if not isinstance(payloads, list) or not payloads:
            reason = f"{shown(payloads)} is not a list of prompts"
            raise document.error(f"data[{index}].payloads", reason)
        prompts[entry["session_id"]] = prompt_text(payloads[0])
    return prompts

"""One request of SGLang's log or dump: what was asked for (`obj`) and what came out (`out`).

Format of SGLang 0.5.23 (`GenerateReqInput`, and `meta_info` of `tokenizer_manager.py`). With
`--enable-metrics`, `meta_info` has `request_received_ts`, `request_finished_ts`,
`forward_entry_time` (all in seconds since 1970) and `first_token_latency`.
"""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import NamedTuple

import numpy as np

from sim.core.arrays import Int64
from sim.core.units import MAX_TIME_NS, NS_PER_S
from sim.server_log.python_text import CutValue
from sim.workload import MAX_TOKENS
from sim.workload.results.model import ImportedRequest, PromptIds
from sim.workload.traces.rows import shown

HEALTH_CHECK = "HEALTH_CHECK"
# SGLang's priorities are ints of any size; ours fit 32 bits.
_MAX_PRIORITY = (1 << 31) - 1
_CUT_MARK = "..."
_MAX_S = MAX_TIME_NS // NS_PER_S


class BadRecordError(Exception):
    """A key of a record has a bad value; the arguments are `(key, reason)`."""


class ReceivedRequest(NamedTuple):
    """A request as it was received.

    Attributes:
        obj: the logged fields of `GenerateReqInput`.
        at_ns: when the log or dump says that it was received; None: not known.
        in_whole_seconds: `at_ns` is known to the second only.
    """

    rid: str
    obj: Mapping[str, object]
    at_ns: int | None
    in_whole_seconds: bool = False


class LoggedRequest(NamedTuple):
    """A request that was read from the log or dump.

    Attributes:
        text: the text of its prompt, if the log has it and does not have the token ids.
        by_log: its times are by the log's own clock, not the server's seconds since 1970.
    """

    request: ImportedRequest
    text: str | None
    by_log: bool = False


def is_health_check(obj: Mapping[str, object], rid: str) -> bool:
    """Whether this is one of the health checks that the server sends to itself."""
    return obj.get("log_metrics") is False or rid.startswith(HEALTH_CHECK)


def finished(
    asked: ReceivedRequest, out: Mapping[str, object], finish_ns: int | None
) -> LoggedRequest:
    """A request that ended.

    `asked` is the request as it was received, `out` the logged output; `finish_ns` is by the log or
    dump, None: not known exactly.

    Raises BadRecordError: the record has no lengths or no times.
    """
    meta = out.get("meta_info")
    if not isinstance(meta, Mapping):
        raise BadRecordError("out.meta_info", "missing")
    failure = _failure(meta)
    latency = _time_ns(meta, "e2e_latency")
    received_ns = _time_ns(meta, "request_received_ts")
    arrival = received_ns
    if arrival is None:
        arrival = _logged_arrival(asked, finish_ns, latency, failure)
    end = _time_ns(meta, "request_finished_ts")
    if end is None:
        end = arrival + latency if latency is not None else finish_ns
    first_latency = _time_ns(meta, "first_token_latency")
    prompt_tokens = _count(meta, "prompt_tokens", needed=not failure)
    output_tokens = _count(meta, "completion_tokens", needed=not failure)
    request = _request(asked, arrival, prompt_tokens, output_tokens, failure)
    ended = replace(
        request,
        scheduled_ns=_time_ns(meta, "forward_entry_time"),
        first_token_ns=None if first_latency is None else arrival + first_latency,
        finish_ns=None if failure else end,
        answer=_ids(out.get("output_ids"), whole=True),
    )
    return LoggedRequest(ended, _text(asked.obj), by_log=received_ns is None)


def unfinished(asked: ReceivedRequest, failure: str) -> LoggedRequest:
    """A request of which only the arrival is known."""
    assert asked.at_ns is not None  # noqa: S101 - the log has its arrival
    request = _request(asked, asked.at_ns, None, None, failure)
    return LoggedRequest(request, _text(asked.obj), by_log=True)


def _request(
    asked: ReceivedRequest,
    arrival_ns: int,
    prompt_tokens: int | None,
    output_tokens: int | None,
    failure: str,
) -> ImportedRequest:
    obj = asked.obj
    limit, ignores = _limit(obj, output_tokens)
    return ImportedRequest(
        rid=asked.rid,
        arrival_ns=arrival_ns,
        prompt_tokens=prompt_tokens or _num_ids(obj),
        output_tokens=output_tokens,
        failure=failure,
        prompt_ids=_prompt_ids(obj),
        max_new_tokens=limit,
        ignore_eos=ignores,
        priority=_priority(obj),
        session=_session(obj),
    )


def _logged_arrival(
    asked: ReceivedRequest, finish_ns: int | None, latency_ns: int | None, failure: str
) -> int:
    """The arrival of a request whose own record does not have it."""
    if asked.at_ns is not None and (failure or not asked.in_whole_seconds):
        return asked.at_ns
    if finish_ns is not None and latency_ns is not None:
        return finish_ns - latency_ns
    raise BadRecordError(
        "meta_info.request_received_ts",
        "missing, and the log has whole seconds only: start the server with --enable-metrics,"
        " or with --log-requests-format json",
    )


def _failure(meta: Mapping[str, object]) -> str:
    reason = meta.get("finish_reason")
    if isinstance(reason, Mapping) and reason.get("type") == "abort":
        message = reason.get("message")
        return f"aborted: {message}" if isinstance(message, str) and message else "aborted"
    return ""


def _limit(obj: Mapping[str, object], output_tokens: int | None) -> tuple[int | None, bool]:
    """The client's `max_new_tokens` (None: unknown), and whether it alone ended the output."""
    params = obj.get("sampling_params")
    if not isinstance(params, Mapping):
        return None, False
    limit = params.get("max_new_tokens")
    if type(limit) is not int or limit < max(1, output_tokens or 0):
        return None, False
    return limit, params.get("ignore_eos") is True and limit == output_tokens


def _prompt_ids(obj: Mapping[str, object]) -> PromptIds | None:
    ids = _ids(obj.get("input_ids"), whole=False)
    return None if ids is None else PromptIds(ids)


def _num_ids(obj: Mapping[str, object]) -> int | None:
    ids = _ids(obj.get("input_ids"), whole=True)
    return None if ids is None else len(ids)


def _ids(value: object, *, whole: bool) -> Int64 | None:
    """The token ids. If the log cut the list: its beginning, or None if `whole`."""
    if isinstance(value, CutValue):
        value = None if whole else value.beginning
    if isinstance(value, tuple):
        value = list(value)
    if isinstance(value, list) and _CUT_MARK in value:
        value = None if whole else value[: value.index(_CUT_MARK)]
    if not isinstance(value, list) or not value or len(value) > MAX_TOKENS:
        return None
    if not all(type(item) is int and abs(item) < 1 << 61 for item in value):
        return None
    return np.array(value, dtype=np.int64)


def _text(obj: Mapping[str, object]) -> str | None:
    """The prompt's text, if the log has all of it and does not have the token ids."""
    text = obj.get("text")
    if not isinstance(text, str) or _ids(obj.get("input_ids"), whole=False) is not None:
        return None
    # At --log-requests-level 2, a json log has three dots for all but the first and last 1024
    # characters of a longer text.
    cut = len(text) == 2048 + len(_CUT_MARK) and text[1024:1027] == _CUT_MARK
    return None if cut else text


def _priority(obj: Mapping[str, object]) -> int | None:
    value = obj.get("priority")
    return value if type(value) is int and abs(value) <= _MAX_PRIORITY else None


def _session(obj: Mapping[str, object]) -> str:
    for key in ("session_id", "conversation_id"):
        value = obj.get(key)
        if isinstance(value, str) and value and value.isprintable():
            return value
    return ""


def _count(meta: Mapping[str, object], key: str, *, needed: bool) -> int | None:
    value = meta.get(key)
    if type(value) is int and (1 if needed else 0) <= value <= MAX_TOKENS:
        return value
    if value is None and not needed:
        return None
    raise BadRecordError(
        f"meta_info.{key}",
        "missing" if value is None else f"{shown(value)} is not a number of tokens",
    )


def _time_ns(meta: Mapping[str, object], key: str) -> int | None:
    """The value of `key`, a duration or a time since 1970, from seconds to ns."""
    value = meta.get(key)
    if value is None:
        return None
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if not (is_number and 0 <= value < _MAX_S):  # type: ignore[operator]
        raise BadRecordError(f"meta_info.{key}", f"{shown(value)} is not a time in seconds")
    # `str` gives the digits of the log; the exact value of a float has more.
    return round(Decimal(str(value)) * NS_PER_S)

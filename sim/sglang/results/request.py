"""One request as SGLang's server remembers it: what was received_request (`obj`), what came of it (`out`).

Of SGLang 0.5.23 (`GenerateReqInput`, and `meta_info` of `tokenizer_manager.py`). With
`--enable-metrics`, `meta_info` has `request_received_ts`, `request_finished_ts`,
`forward_entry_time` (seconds since 1970) and `first_token_latency`.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import NamedTuple

import numpy as np

from sim.core.units import NS_PER_S
from sim.sglang.results.logged_objects import CutValue
from sim.workload.limits import MAX_TOKENS, Int64
from sim.workload.results.model import ImportedRequest, KnownTokens
from sim.workload.traces.fields import shown

HEALTH_CHECK = "HEALTH_CHECK"
# SGLang's priorities are ints of any size; ours fit 32 bits.
_MAX_PRIORITY = (1 << 31) - 1
_CUT_MARK = "..."
_MAX_S = 10**9 * 9  # ns since 1970 fit 63 bits


class BadRecordError(Exception):
    """A key of a record is not as it must be: `(key, reason)`."""


class ReceivedRequest(NamedTuple):
    """A request as it was received.

    Attributes:
        rid: its name.
        obj: the fields of `GenerateReqInput` that were kept.
        at_ns: when, by the log or the dump; None: not known.
        in_whole_seconds: that is in whole seconds.
    """

    rid: str
    obj: Mapping[str, object]
    at_ns: int | None
    in_whole_seconds: bool = False


class LoggedRequest(NamedTuple):
    """A request, its prompt's text where its tokens are not known, and whose clock told its times.

    `by_log`: the log's own clock, not the server's seconds since 1970.
    """

    request: ImportedRequest
    text: str | None
    by_log: bool = False


def is_health_check(obj: Mapping[str, object], rid: str) -> bool:
    """Health checks come from the server itself."""
    return obj.get("log_metrics") is False or rid.startswith(HEALTH_CHECK)


def finished(
    received_request: ReceivedRequest, out: Mapping[str, object], finish_ns: int | None
) -> LoggedRequest:
    """A request that ended; `finish_ns` by the log or the dump.

    Raises:
        BadRecordError: without lengths, or without a time.
    """
    meta = out.get("meta_info")
    if not isinstance(meta, Mapping):
        raise BadRecordError("out.meta_info", "missing")
    failure = _failure(meta)
    latency = _time_ns(meta, "e2e_latency")
    received = _time_ns(meta, "request_received_ts")
    arrival = (
        _logged_arrival(received_request, finish_ns, latency, failure)
        if received is None
        else received
    )
    end = _time_ns(meta, "request_finished_ts")
    if end is None:
        end = arrival + latency if latency is not None else finish_ns
    first_latency = _time_ns(meta, "first_token_latency")
    obj = received_request.obj
    prompt_tokens = _count(meta, "prompt_tokens", needed=not failure)
    output_tokens = _count(meta, "completion_tokens", needed=not failure)
    limit, ignores = _limit(obj, output_tokens)
    request = ImportedRequest(
        rid=received_request.rid,
        arrival_ns=arrival,
        scheduled_ns=_time_ns(meta, "forward_entry_time"),
        first_token_ns=None if first_latency is None else arrival + first_latency,
        finish_ns=None if failure else end,
        prompt_tokens=prompt_tokens or _num_ids(obj),
        output_tokens=output_tokens,
        failure=failure,
        known=_known(obj),
        answer=_ids(out.get("output_ids"), whole=True),
        max_new_tokens=limit,
        ignore_eos=ignores,
        priority=_priority(obj),
        session=_session(obj),
    )
    return LoggedRequest(request, _text(obj), by_log=received is None)


def unfinished(received_request: ReceivedRequest, failure: str) -> LoggedRequest:
    """A request that nothing is known of but that it came, and when."""
    obj = received_request.obj
    assert received_request.at_ns is not None  # noqa: S101 - it has been seen to come
    limit, ignores = _limit(obj, None)
    request = ImportedRequest(
        rid=received_request.rid,
        arrival_ns=received_request.at_ns,
        prompt_tokens=_num_ids(obj),
        output_tokens=None,
        failure=failure,
        known=_known(obj),
        max_new_tokens=limit,
        ignore_eos=ignores,
        priority=_priority(obj),
        session=_session(obj),
    )
    return LoggedRequest(request, _text(obj), by_log=True)


def _logged_arrival(
    received_request: ReceivedRequest, finish_ns: int | None, latency_ns: int | None, failure: str
) -> int:
    """When a request came that its own record does not say it of."""
    if received_request.at_ns is not None and (failure or not received_request.in_whole_seconds):
        return received_request.at_ns
    if finish_ns is not None and latency_ns is not None:
        return finish_ns - latency_ns
    raise BadRecordError(
        "meta_info.request_received_ts",
        "missing, and the log tells whole seconds only: start the server with --enable-metrics,"
        " or with --log-requests-format json",
    )


def _failure(meta: Mapping[str, object]) -> str:
    reason = meta.get("finish_reason")
    if isinstance(reason, Mapping) and reason.get("type") == "abort":
        return f"aborted: {reason.get('message')}" if reason.get("message") else "aborted"
    return ""


def _limit(obj: Mapping[str, object], output_tokens: int | None) -> tuple[int | None, bool]:
    """The client's limit, and whether only it ends the output; None where it is not told."""
    params = obj.get("sampling_params")
    if not isinstance(params, Mapping):
        return None, False
    limit = params.get("max_new_tokens")
    if type(limit) is not int or limit < max(1, output_tokens or 0):
        return None, False
    return limit, params.get("ignore_eos") is True and limit == output_tokens


def _known(obj: Mapping[str, object]) -> KnownTokens | None:
    ids = _ids(obj.get("input_ids"), whole=False)
    return None if ids is None else KnownTokens(ids)


def _num_ids(obj: Mapping[str, object]) -> int | None:
    ids = _ids(obj.get("input_ids"), whole=True)
    return None if ids is None else len(ids)


def _ids(value: object, *, whole: bool) -> Int64 | None:
    """Token ids; of a list that the log cut, the beginning, unless it must be whole."""
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
    """The prompt's text, if it is whole and its tokens are not known."""
    text = obj.get("text")
    if not isinstance(text, str) or _ids(obj.get("input_ids"), whole=False) is not None:
        return None
    # A json log cuts texts above 2048 characters at level 2, in the middle, with three dots.
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
        f"meta_info.{key}", "missing" if value is None else f"{shown(value)} is no number of tokens"
    )


def _time_ns(meta: Mapping[str, object], key: str) -> int | None:
    """Seconds, in ns: a duration, or since 1970."""
    value = meta.get(key)
    if value is None:
        return None
    try:
        seconds = Decimal(str(value))
        possible = 0 <= seconds < _MAX_S
    except ArithmeticError:
        possible = False
    if not possible:
        raise BadRecordError(f"meta_info.{key}", f"{shown(value)} is no time in seconds")
    return round(seconds * NS_PER_S)

"""What the results of SGLang's and vLLM's serving benchmarks have in common.

Both write one JSON object for each run. Its arrays have one value for each request, in order of
sending: `input_lens`, `output_lens` (0 for a failed request), `ttfts` and `itls` in seconds,
`generated_texts` and `errors`. A request's last token comes at start + ttft + sum of its itls.
"""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

from sim.core.errors import InputError
from sim.core.units import MAX_TIME_NS, NS_PER_S
from sim.workload.limits import MAX_TOKENS
from sim.workload.results.model import ImportedRequest
from sim.workload.results.pacing import Pacing, sent_ns, span_text
from sim.workload.traces.fields import shown, why_not_whole
from sim.workload.traces.files import JsonObject, TextLine, parse_object, read_lines

_MAX_FAILURE = 100


def read_document(path: Path, line: int | None) -> tuple[TextLine, JsonObject]:
    """The only run of a file, or the run on line `line`.

    Clients append a run to their file as one line. A file with one run that was formatted over
    several lines, for instance by `jq`, is read too.
    """
    lines = list(read_lines(path))
    if not lines:
        raise InputError(f"{path}: holds no results")
    if lines[0].text.strip() == "{":
        lines = [lines[0]._replace(text="\n".join(each.text for each in lines))]
    if line is None and len(lines) > 1:
        numbers = ", ".join(str(each.number) for each in lines[:5])
        more = ", ..." if len(lines) > 5 else ""
        raise InputError(
            f"{path}: holds {len(lines)} runs, on lines {numbers}{more}: say which with --line"
        )
    chosen = [each for each in lines if line in {None, each.number}]
    if not chosen:
        raise InputError(f"{path}: --line {line}: no run there")
    return chosen[0], parse_object(chosen[0])


def read_requests(
    line: TextLine, row: JsonObject, pacing: Pacing, draw_seed: int | None, *, hint: str
) -> tuple[list[ImportedRequest], list[str]]:
    """The requests, named by their index; and notes on when they were sent.

    A request without a first token counts as failed, even if the client reports no error. `hint`
    tells the user how to get results with arrays.
    """
    keys = ("input_lens", "output_lens", "ttfts", "itls", "errors")
    columns = {key: _array(line, row, key, hint=hint) for key in keys}
    _require_equal_lengths(line, columns)
    values = zip(
        _tokens(line, "input_lens", columns["input_lens"]),
        _tokens(line, "output_lens", columns["output_lens"]),
        _seconds_ns(line, "ttfts", columns["ttfts"]),
        _sums_ns(line, "itls", columns["itls"]),
        _texts(line, "errors", columns["errors"]),
        strict=True,
    )
    # As if each were sent at time 0.
    requests = [_request(str(index), *each) for index, each in enumerate(values)]
    notes = []
    starts = _start_times(line, row, len(requests))
    if starts is None:
        latencies = [request.finish_ns for request in requests]
        where = f"{line.path}:{line.number}"
        starts, how = sent_ns(pacing, latencies, draw_seed=draw_seed, where=where)
        notes = [how, span_text(starts, latencies, row.get("duration", "an unknown number of"))]
    elif draw_seed is not None:
        notes = ["--draw-arrivals has no effect: the file says when requests were sent"]
    return [each.moved(start) for each, start in zip(requests, starts, strict=True)], notes


def rate_of(line: TextLine, row: JsonObject) -> float | None:
    """`request_rate` in requests/s, which may be infinite; None if missing or another word."""
    value = row.get("request_rate")
    if value in ("inf", float("inf")):
        return float("inf")
    if value is None or isinstance(value, str):
        return None
    return positive(line, row, "request_rate")


def positive(line: TextLine, row: JsonObject, key: str) -> float:
    value = row[key]
    try:
        number = float(str(value))
    except ValueError:
        number = 0
    if isinstance(value, bool) or not 0 < number < float("inf"):
        raise line.error(key, f"{shown(value)} is not a number above 0")
    return number


def concurrency_of(line: TextLine, row: JsonObject) -> int | None:
    value = row.get("max_concurrency")
    if value is None or (type(value) is int and value >= 1):
        return value
    raise line.error("max_concurrency", f"{shown(value)} is not a whole number above 0")


def accepted_of(row: JsonObject, key: str) -> float | None:
    """Tokens in a step of a server that decodes speculatively; None: it does not, or not known."""
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not 1 < value < 1_000:
        return None
    return float(value)


def told_of(row: JsonObject, keys: tuple[str, ...]) -> dict[str, object]:
    """The client's settings among the results, for people to read; without those that are null."""
    return {key: row[key] for key in keys if row.get(key) is not None}


def _request(
    rid: str,
    prompt_tokens: int,
    output_tokens: int,
    ttft_ns: int,
    gaps: tuple[int, int],
    error: str,
) -> ImportedRequest:
    num_gaps, decode_ns = gaps
    seen = ttft_ns > 0
    failure = ""
    if error or not seen or not output_tokens:
        failure = _last_line(error) or "no token came"
        # The client reports 0 tokens for a failed request, even if some arrived.
        output_tokens = 1 + num_gaps if seen else 0
    return ImportedRequest(
        rid=rid,
        arrival_ns=0,
        first_token_ns=ttft_ns if seen else None,
        finish_ns=None if failure else ttft_ns + decode_ns,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        failure=failure,
    )


def _start_times(line: TextLine, row: JsonObject, num_requests: int) -> list[int] | None:
    key = "start_times" if row.get("start_times") is not None else "arrival_times"
    if row.get(key) is None:
        return None
    values = _array(line, row, key, hint="")
    if len(values) != num_requests:
        raise line.error(key, f"{len(values)} values, but input_lens has {num_requests}")
    return _seconds_ns(line, key, values)


def _last_line(error: str) -> str:
    """The last line of a traceback, which says what went wrong."""
    lines = error.strip().splitlines()
    text = lines[-1].strip() if lines else ""
    return text if len(text) <= _MAX_FAILURE else f"{text[: _MAX_FAILURE - 3]}..."


def _array(line: TextLine, row: JsonObject, key: str, *, hint: str) -> list[object]:
    """The list at `key`; `hint` tells the user how to get results that have it."""
    value = row.get(key)
    if value is None:
        raise line.error(key, f"missing: {hint}")
    if not isinstance(value, list):
        raise line.error(key, f"{shown(value)} is not a list")
    return value


def _require_equal_lengths(line: TextLine, arrays: dict[str, list[object]]) -> int:
    """The number of requests: the length that all arrays have, at least 1."""
    (first, values), *others = arrays.items()
    for key, other in others:
        if len(other) != len(values):
            raise line.error(key, f"{len(other)} values, but {first} has {len(values)}")
    if not values:
        raise line.error(first, "empty: no request was sent")
    return len(values)


def _tokens(line: TextLine, key: str, values: Sequence[object]) -> list[int]:
    """Values that must be whole numbers of at least 0."""
    for place, value in enumerate(values):
        if type(value) is not int or not 0 <= value <= MAX_TOKENS:
            raise line.error(f"{key}[{place}]", why_not_whole(value, 0, MAX_TOKENS))
    return [value for value in values if isinstance(value, int)]


def _texts(line: TextLine, key: str, values: Sequence[object]) -> list[str]:
    """Values that must be texts; null counts as an empty one."""
    for place, value in enumerate(values):
        if value is not None and not isinstance(value, str):
            raise line.error(f"{key}[{place}]", f"{shown(value)} is not text")
    return [value if isinstance(value, str) else "" for value in values]


def _seconds_ns(line: TextLine, key: str, values: Sequence[object]) -> list[int]:
    """Values that must be at least 0 seconds; returned in ns."""
    return [
        round(_seconds(line, f"{key}[{i}]", value) * NS_PER_S) for i, value in enumerate(values)
    ]


def _sums_ns(line: TextLine, key: str, values: Sequence[object]) -> list[tuple[int, int]]:
    """Values that must be lists of seconds; returns the length and the sum in ns of each list."""
    found = []
    for place, value in enumerate(values):
        if not isinstance(value, list):
            raise line.error(f"{key}[{place}]", f"{shown(value)} is not a list")
        total = sum(_seconds(line, f"{key}[{place}][{i}]", gap) for i, gap in enumerate(value))
        found.append((len(value), round(total * NS_PER_S)))
    return found


def _seconds(line: TextLine, where: str, value: object) -> Decimal | int:
    # Fractions are read as Decimal, so a float is NaN or Infinity.
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise line.error(where, f"{shown(value)} is not a finite number of seconds")
    if not 0 <= value <= MAX_TIME_NS // NS_PER_S:
        raise line.error(where, f"{shown(value)} s is not a possible time")
    return value

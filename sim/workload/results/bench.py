"""What the results of SGLang's and vLLM's serving benchmarks have in common.

Both write one JSON object for each run. Its arrays have one value for each request, in order of
sending: `input_lens`, `output_lens` (0 for a failed request), `ttfts` and `itls` in seconds,
`generated_texts` and `errors`. A request's last token comes at start + ttft + sum of its itls.

Start times that are not in the results are reconstructed. Both clients (SGLang 0.5.23
`sglang.benchmark.serving`, vLLM 0.19.0 `vllm bench serve`) start a task for each request: all tasks
at once if `request_rate` is infinite, else with random gaps. Each task waits for one of
`max_concurrency` slots, first come first served.
"""

from collections.abc import Sequence
from decimal import Decimal
from heapq import heapreplace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import ValidationError

from sim.core.errors import InputError
from sim.core.units import MAX_TIME_NS, NS_PER_S
from sim.workload import MAX_TOKENS
from sim.workload.arrivals import GammaArrivals, PoissonArrivals, draw_arrivals_ns
from sim.workload.results.model import ImportedRequest, ImportedRun, ReadOptions
from sim.workload.traces.files import JsonObject, TextLine, parse_object, read_lines
from sim.workload.traces.rows import shown, why_not_whole


class Pacing(NamedTuple):
    """A client's settings for sending.

    Attributes:
        rate_rps: requests per second; infinite: all at once; None: not sent at a rate.
        burstiness: shape of the gamma distribution of the gaps; 1 is Poisson.
        max_concurrency: slots; None: no limit.
    """

    rate_rps: float | None
    burstiness: float = 1.0
    max_concurrency: int | None = None


def sent_ns(
    pacing: Pacing,
    latency_ns: Sequence[int | None],
    *,
    draw_seed: int | None,
    where: str,
) -> tuple[list[int], str]:
    """When each request was sent, and a note that says how that is known.

    If all tasks started at once, the times follow from the slots and the latencies. Random gaps
    are not in the results: gaps that are drawn here have the same distribution, but other values.

    Latencies are in order of sending; that of a request that failed at an unknown time is None.
    Without a `draw_seed`, no gaps are drawn. `where` is the file and line, for errors.
    """
    drawn = pacing.rate_rps != float("inf")
    if drawn and draw_seed is None:
        raise InputError(
            f"{where}: start_times: missing, and requests were sent at random times, which the"
            " file lacks; --draw-arrivals SEED draws times of the same distribution instead"
        )
    if pacing.max_concurrency is not None and None in latency_ns:
        raise InputError(
            f"{where}: start_times: missing, and request {latency_ns.index(None)} failed at an"
            " unknown time, so it is not known which request took its place under max_concurrency"
        )
    asked_ns = _drawn(pacing, len(latency_ns), draw_seed, where) if drawn else [0] * len(latency_ns)
    if pacing.max_concurrency is not None:
        asked_ns = _with_slots(asked_ns, latency_ns, pacing.max_concurrency)
    return asked_ns, _how(pacing, drawn=drawn)


def _drawn(pacing: Pacing, num_requests: int, seed: int | None, where: str) -> list[int]:
    rate_rps = pacing.rate_rps
    if rate_rps is None:
        raise InputError(f"{where}: request_rate: is not a rate, so no arrivals can be drawn")
    arrivals: PoissonArrivals | GammaArrivals
    try:
        arrivals = PoissonArrivals(kind="poisson", rate_rps=rate_rps)
        if pacing.burstiness != 1:
            cv = pacing.burstiness**-0.5
            arrivals = GammaArrivals(kind="gamma", rate_rps=rate_rps, cv=cv)
    except ValidationError:
        reason = "no arrivals can be drawn at such a request_rate and burstiness"
        raise InputError(f"{where}: {reason}") from None
    rng = np.random.default_rng(seed)
    try:
        times = draw_arrivals_ns(arrivals, num_requests, rng, key=("request_rate",))
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    return [int(time) for time in times - times[0]]


def _with_slots(
    asked_ns: Sequence[int], latency_ns: Sequence[int | None], num_slots: int
) -> list[int]:
    """Send times of requests that ask for a slot at these times, in order, and wait for one."""
    free_ns = [0] * min(num_slots, len(asked_ns))
    sent = []
    for asked, latency in zip(asked_ns, latency_ns, strict=True):
        start = max(asked, free_ns[0])
        heapreplace(free_ns, start + (latency or 0))
        sent.append(start)
    return sent


def _how(pacing: Pacing, *, drawn: bool) -> str:
    if drawn:
        return "arrivals are drawn, not measured: compare distributions, not single requests"
    if pacing.max_concurrency is None:
        return "no start times in the file: all requests were sent at once, at an infinite rate"
    return (
        "no start times in the file: they follow from the latencies, as each of the"
        f" {pacing.max_concurrency} slots was used again as soon as it was free"
    )


def span_text(sent: Sequence[int], latency_ns: Sequence[int | None], duration_s: object) -> str:
    """A note on how long the run takes with reconstructed times, and how long it really took."""
    end_ns = max(start + (latency or 0) for start, latency in zip(sent, latency_ns, strict=True))
    return f"with these times the run takes {end_ns / NS_PER_S:,.2f} s; it took {duration_s} s"


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


def refuse_aggregates(path: Path, _options: ReadOptions) -> ImportedRun:
    """Refuse InferenceX's results, which have no requests."""
    raise InputError(
        f"{path}: has aggregates, not requests: simulate import makes a scenario of its server"
    )


def read_requests(
    line: TextLine, row: JsonObject, pacing: Pacing, draw_seed: int | None, *, hint: str
) -> tuple[list[ImportedRequest], list[str]]:
    """The requests, named by their index; and notes on when they were sent.

    A request without a first token counts as failed, even if the client reports no error. `hint`
    tells the user how to get results with arrays. Results with times to first tokens, but without
    those of the other tokens, have a mean TPOT, which every request then has.
    """
    keys = ("input_lens", "output_lens", "ttfts", "itls", "errors")
    row, notes = _with_mean_gaps(line, row)
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
    starts = _start_times(line, row, len(requests))
    if starts is None:
        latencies = [request.finish_ns for request in requests]
        where = f"{line.path}:{line.number}"
        starts, how = sent_ns(pacing, latencies, draw_seed=draw_seed, where=where)
        notes += [how, span_text(starts, latencies, row.get("duration", "an unknown number of"))]
    elif draw_seed is not None:
        notes.append("--draw-arrivals has no effect: the file says when requests were sent")
    return [each.moved(start) for each, start in zip(requests, starts, strict=True)], notes


def _with_mean_gaps(line: TextLine, row: JsonObject) -> tuple[JsonObject, list[str]]:
    """The run with `itls` and `errors` in place of those that the file lacks; and a note."""
    has_gaps = row.get("itls") is not None
    if has_gaps or None in (row.get("ttfts"), row.get("output_lens"), row.get("mean_tpot_ms")):
        return row, []
    mean_ms = positive(line, row, "mean_tpot_ms")
    gap = Decimal(str(mean_ms)) / 1000
    lengths = _tokens(line, "output_lens", _array(line, row, "output_lens", hint=""))
    # One gap stands for all of a request.
    gaps = [[gap * (length - 1)] if length > 1 else [] for length in lengths]
    note = (
        f"itls are not in the file: every request is taken to decode at the mean TPOT {mean_ms:.2f}"
    )
    note += " ms, so compare means, not single requests"
    return {"errors": [""] * len(lengths), **row, "itls": gaps}, [note]


def earlier_runs(path: Path, line: TextLine, row: JsonObject) -> list[str]:
    """A note on runs before this one in a file that sent prompts of the same lengths."""
    if row.get("input_lens") is None:
        return []
    before = [each for each in read_lines(path) if each.number < line.number]
    same = [
        str(each.number)
        for each in before
        if parse_object(each).get("input_lens") == row["input_lens"]
    ]
    if not same:
        return []
    lines = f"line{'s' if len(same) > 1 else ''} {', '.join(same[:5])}{', ...' * (len(same) > 5)}"
    note = f"the run on {lines} sent prompts of the same lengths before: if they were the same and"
    return [f"{note} the prefix cache was not flushed, the server found them; here it begins empty"]


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


def other_settings_of(row: JsonObject, keys: tuple[str, ...]) -> dict[str, object]:
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


def _require_equal_lengths(line: TextLine, arrays: dict[str, list[object]]) -> None:
    """Check that all arrays have one length, at least 1."""
    (first, values), *others = arrays.items()
    for key, other in others:
        if len(other) != len(values):
            raise line.error(key, f"{len(other)} values, but {first} has {len(values)}")
    if not values:
        raise line.error(first, "empty: no request was sent")


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

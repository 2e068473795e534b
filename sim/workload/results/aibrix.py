"""Results of AIBrix, of the client of vLLM's production stack, multi-round-qa.py.

The client (vllm-project/production-stack at 0a330da, `benchmarks/multi-round-qa/multi-round-qa.py`)
writes one line for each request that finished, with times in seconds of its clock. AIBrix's results
(vllm-project/aibrix, `test/regression/v0.3.0`) are such files. Several of them in one file have two
more columns, `condition` (the servers) and `qps` (the load); the rows of one run follow each other.

A later prompt of a user begins with the one before and its answer. How much of a prompt all users
share is a flag of the client, which the file lacks.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from sim.core.errors import InputError, shorten
from sim.workload.results.known_prompts import with_linked_turns
from sim.workload.results.model import (
    ImportedRequest,
    ImportedRun,
    ReadOptions,
    ServerFacts,
)
from sim.workload.traces.csv_traces import read_csv_rows, seconds_to_ns, token_count
from sim.workload.traces.files import TextLine

_HEADER = (
    "prompt_tokens,generation_tokens,ttft,generation_time,user_id,question_id,launch_time,"
    "finish_time"
)
_HEADERS = (_HEADER, f"condition,qps,{_HEADER}")
_NOTE = (
    "each prompt of a user begins with the one before and its answer; how much all users share is"
    " not in the file: it is assumed that they share nothing"
)
_MAX_NAMED = 8
_Rows = list[tuple[TextLine, Mapping[str, str]]]
# Condition and load, and the rows.
_Run = tuple[tuple[str, str], _Rows]


def is_header(text: str) -> bool:
    """Whether a line of a file is the header of such results."""
    return text.rstrip("\r\n") in _HEADERS


def read_aibrix(path: Path, options: ReadOptions) -> ImportedRun:
    """Read one run.

    Raises InputError: the file is bad, or it has several runs and none is chosen.
    """
    if options.draw_arrivals is not None:
        raise InputError("--draw-arrivals has no effect: the file says when requests were sent")
    runs: list[_Run] = [
        (key, list(rows))
        for key, rows in groupby(
            read_csv_rows(path, _HEADERS, None),
            lambda row: (row[1].get("condition", ""), row[1].get("qps", "")),
        )
    ]
    if not runs:
        raise InputError(f"{path}: holds no results")
    (condition, qps), rows = _chosen(path, runs, options.line)
    requests, _ = with_linked_turns([_request(line, row) for line, row in rows])
    settings = {"condition": condition, "qps": qps} if condition or qps else {}
    notes = [_NOTE, *_earlier(runs, condition, qps)]
    return ImportedRun(requests, ServerFacts(("vllm",), other_settings=settings), tuple(notes))


def _chosen(path: Path, runs: Sequence[_Run], line: int | None) -> _Run:
    if line is None and len(runs) > 1:
        raise InputError(
            f"{path}: holds {len(runs)} runs: say which with --line N: {_listed(runs)}"
        )
    if line is not None and line > len(runs):
        raise InputError(f"{path}: --line {line}: it has {len(runs)} runs: {_listed(runs)}")
    return runs[(line or 1) - 1]


def _listed(runs: Sequence[_Run]) -> str:
    """Which runs are of which servers: `naive 1-11, cached 12-22`."""
    names = []
    numbered = enumerate((condition for (condition, _), _ in runs), start=1)
    for condition, group in groupby(numbered, lambda each: each[1]):
        numbers = [number for number, _ in group]
        ends = f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else f"{numbers[0]}"
        names.append(f"{shorten(repr(condition)[1:-1])} {ends}")
    return ", ".join(names[:_MAX_NAMED]) + ", ..." * (len(names) > _MAX_NAMED)


def _earlier(runs: Sequence[_Run], condition: str, qps: str) -> Iterator[str]:
    """A note on loads that the same servers had before."""
    before = [load for (name, load), _ in runs if name == condition]
    before = before[: before.index(qps)]
    if before:
        yield (
            f"the same servers had {len(before)} other loads before, of partly the same users: they"
            " found these prompts in their caches, which here begin empty"
        )


def _request(line: TextLine, row: Mapping[str, str]) -> ImportedRequest:
    arrival_ns, ttft_ns, decode_ns = (
        seconds_to_ns(line, row, key) for key in ("launch_time", "ttft", "generation_time")
    )
    output = token_count(line, row, "generation_tokens")
    return ImportedRequest(
        rid=str(line.number),
        arrival_ns=arrival_ns,
        first_token_ns=arrival_ns + ttft_ns if output else None,
        finish_ns=arrival_ns + ttft_ns + decode_ns if output else None,
        prompt_tokens=token_count(line, row, "prompt_tokens"),
        output_tokens=output,
        failure="" if output else "no token came",
        session=f"user {token_count(line, row, 'user_id')}",
    )

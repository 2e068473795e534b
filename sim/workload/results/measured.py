"""Measured runs in servetwin's own format (docs/how-to/measured.md), read and made.

A client of one's own may write such a run. Imported requests become one, and the workload to
compare it with.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from sim.core.arrays import Int64
from sim.core.errors import InputError, shorten
from sim.core.packed import open_text
from sim.core.tokens import TokenIds
from sim.core.units import NS_PER_S
from sim.runlog.columns import NOT_YET_NS
from sim.runlog.run_log_file import MAX_MEASURED_S, MeasuredRun, read_measured
from sim.workload.prompts import EitherPrompts
from sim.workload.results.known_prompts import PrefixStreams
from sim.workload.results.model import NO_PROMPTS, ImportedRequest, ImportedRun, PromptIds
from sim.workload.traces.servetwin import read_servetwin, servetwin_line

_WORKLOAD = "workload.jsonl.gz"


def read_measured_requests(path: Path) -> ImportedRun:
    """Read a measured run. Raises InputError as `read_measured`.

    `realrun replay` writes the prompts beside it.
    """
    run = read_measured(path)
    prompts = _prompts_beside(path, run)
    return ImportedRun(
        [_request(run, row, prompts.get(run.rid[row])) for row in range(len(run))],
        notes=() if prompts else (NO_PROMPTS,),
    )


def _prompts_beside(path: Path, run: MeasuredRun) -> dict[str, TokenIds]:
    """The prompts of all requests, by rid, from the workload in the same folder; empty: none."""
    prompts: dict[str, TokenIds] = {}
    beside = path.with_name(_WORKLOAD)
    if beside.exists():
        with suppress(InputError):
            rows = read_servetwin(beside, limit=None)
            if isinstance(rows.prompts, EitherPrompts):
                made = rows.prompts.prompt
                prompts = {rid: made(row).token_ids() for row, rid in enumerate(rows.rids or ())}
    fits = all(
        rid in prompts and len(prompts[rid]) == num_tokens
        for rid, num_tokens in zip(run.rid, run.prompt_tokens, strict=True)
    )
    return prompts if fits else {}


def _request(run: MeasuredRun, row: int, prompt: TokenIds | None) -> ImportedRequest:
    scheduled_ns, first_token_ns, finish_ns = (
        None if column[row] == NOT_YET_NS else int(column[row])
        for column in (run.scheduled_ns, run.first_token_ns, run.finish_ns)
    )
    return ImportedRequest(
        rid=run.rid[row],
        arrival_ns=int(run.arrival_ns[row]),
        scheduled_ns=scheduled_ns,
        first_token_ns=first_token_ns,
        finish_ns=finish_ns,
        prompt_tokens=int(run.prompt_tokens[row]) or None,
        output_tokens=int(run.output_tokens[row]) or None,
        failure="" if finish_ns is not None else "no finish",
        prompt_ids=None if prompt is None else PromptIds(prompt),
    )


_NO_IDS = np.empty(0, dtype=np.int64)


def in_order(requests: Iterable[ImportedRequest], where: str) -> tuple[list[ImportedRequest], int]:
    """Sort requests by arrival, count time from the first arrival, and check names and times.

    A `scheduled_ns` that is before the arrival or after the first token is removed: it may be from
    another clock, and clocks differ a little. Also returns how many were removed.
    """
    ordered = sorted(requests, key=lambda request: request.arrival_ns)
    for rid, count in Counter(request.rid for request in ordered).items():
        if count > 1:
            raise InputError(f"{where}: request {shorten(repr(rid))} occurs {count} times")
        if not rid.isprintable():
            raise InputError(f"{where}: request {shorten(repr(rid))}: its name cannot be printed")
    start_ns = ordered[0].arrival_ns
    shifted = [request.moved(-start_ns) for request in ordered]
    kept = [_checked(request, where) for request in shifted]
    return kept, sum(
        before.scheduled_ns != after.scheduled_ns
        for before, after in zip(shifted, kept, strict=True)
    )


def measured_of(requests: Sequence[ImportedRequest]) -> MeasuredRun:
    """The measured run with all requests. Failed ones have no finish; unknown lengths are 0."""

    def column(values: Iterable[int | None], missing: int) -> Int64:
        return np.array([missing if value is None else value for value in values], dtype=np.int64)

    return MeasuredRun(
        rid=[request.rid for request in requests],
        arrival_ns=column((request.arrival_ns for request in requests), 0),
        scheduled_ns=column((request.scheduled_ns for request in requests), NOT_YET_NS),
        first_token_ns=column((request.first_token_ns for request in requests), NOT_YET_NS),
        finish_ns=column((request.finish_ns for request in requests), NOT_YET_NS),
        prompt_tokens=column((request.prompt_tokens for request in requests), 0),
        output_tokens=column((request.output_tokens for request in requests), 0),
    )


def write_workload(requests: Sequence[ImportedRequest], path: Path) -> None:
    """Write the requests whose lengths are known; each generates as many tokens as measured."""
    units = {request.prompt_ids.unit for request in requests if request.prompt_ids is not None}
    streams = PrefixStreams(max(units, default=1))
    with open_text(path) as file:
        file.writelines(
            servetwin_line(request.arrival_ns, _row(request, streams))
            for request in requests
            if request.has_lengths
        )


def _row(request: ImportedRequest, streams: PrefixStreams) -> dict[str, object]:
    num_prompt, num_output = request.prompt_tokens or 0, request.output_tokens or 0
    known = _NO_IDS if request.prompt_ids is None else request.prompt_ids.ids[:num_prompt]
    segments, answer_seed = streams.add(known, num_prompt, request.answer)
    limit = request.max_new_tokens
    row: dict[str, object] = {
        "rid": request.rid,
        "segments": segments,
        "output_len": num_output,
        "max_new_tokens": num_output if limit is None else limit,
        # Without a known limit, ignoring the end token ensures that the output has this length.
        "ignore_eos": request.ignore_eos or limit is None,
        "output_seed": answer_seed,
    }
    if request.priority is not None:
        row["priority"] = request.priority
    if request.session:
        row["session"] = request.session
    return row


def _checked(request: ImportedRequest, where: str) -> ImportedRequest:
    first, finish = request.first_token_ns, request.finish_ns
    known = [time for time in (request.arrival_ns, first, finish) if time is not None]
    if known != sorted(known):
        raise InputError(
            f"{where}: request {shorten(request.rid)}: arrival, first token and finish are not in"
            " this order"
        )
    if known[-1] >= MAX_MEASURED_S * NS_PER_S:
        raise InputError(
            f"{where}: request {shorten(request.rid)}: is {MAX_MEASURED_S:.0e} s or more after the"
            " first one"
        )
    if not request.session.isprintable():
        raise InputError(
            f"{where}: request {shorten(request.rid)}: the name of its session cannot be printed"
        )
    scheduled = request.scheduled_ns
    if scheduled is None:
        return request
    end = next((time for time in (first, finish) if time is not None), scheduled)
    return request if known[0] <= scheduled <= end else replace(request, scheduled_ns=None)

"""Measured runs in servetwin's own format (docs/how-to/measured.md), for clients of one's own."""

from contextlib import suppress
from pathlib import Path

from sim.core.errors import InputError
from sim.core.tokens import TokenIds
from sim.runlog import NOT_YET_NS
from sim.runlog.measured import MeasuredRun, read_measured
from sim.workload.prompts import EitherPrompts
from sim.workload.results.model import NO_PROMPTS, ImportedRequest, ImportedRun, KnownTokens
from sim.workload.traces.servetwin import read_servetwin

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
        known=None if prompt is None else KnownTokens(prompt),
    )

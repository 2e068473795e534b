"""Measured runs in servetwin's own format (docs/how-to/measured.md), for clients of one's own."""

from pathlib import Path

from sim.runlog import NOT_YET_NS
from sim.runlog.measured import MeasuredRun, read_measured
from sim.workload.results.model import NO_PROMPTS, ImportedRequest, ImportedRun


def read_measured_requests(path: Path) -> ImportedRun:
    """Read a measured run. Raises InputError as `read_measured`."""
    run = read_measured(path)
    return ImportedRun([_request(run, row) for row in range(len(run))], notes=(NO_PROMPTS,))


def _request(run: MeasuredRun, row: int) -> ImportedRequest:
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
    )

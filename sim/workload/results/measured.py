"""Measured runs in servetwin's own format (docs/how-to/measured.md), for clients of one's own."""

from pathlib import Path

from sim.runlog import NOT_YET_NS
from sim.runlog.measured import read_measured
from sim.workload.results.model import NO_PROMPTS, ImportedRequest, ImportedRun


def read_measured_requests(path: Path) -> ImportedRun:
    """Read a measured run. Raises InputError as `read_measured`."""
    run = read_measured(path)
    columns = (run.arrival_ns, run.scheduled_ns, run.first_token_ns, run.finish_ns)
    times = [[None if t == NOT_YET_NS else t for t in column.tolist()] for column in columns]
    requests = [
        ImportedRequest(
            rid=rid,
            arrival_ns=arrival_ns,
            scheduled_ns=scheduled_ns,
            first_token_ns=first_token_ns,
            finish_ns=finish_ns,
            prompt_tokens=prompt_tokens or None,
            output_tokens=output_tokens or None,
            failure="" if finish_ns is not None else "no finish",
        )
        for rid, arrival_ns, scheduled_ns, first_token_ns, finish_ns, prompt_tokens, output_tokens in zip(
            run.rid, *times, run.prompt_tokens.tolist(), run.output_tokens.tolist(), strict=True
        )
    ]
    return ImportedRun(requests, notes=(NO_PROMPTS,))

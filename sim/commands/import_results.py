"""Reads a real server's results, and writes them as a workload, a measured run, a scenario."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sim.commands.import_formats import read_results, sniff
from sim.core.errors import InputError
from sim.core.files import make_directory, remove_file, write_text
from sim.runlog.measured import write_measured
from sim.workload.build import build_workload
from sim.workload.config import TraceConfig
from sim.workload.results.measured import in_order, measured_of, write_workload
from sim.workload.results.model import ImportedRequest, ImportedRun, ReadOptions, ServerFacts
from sim.workload.stats import WorkloadStats, workload_stats

WORKLOAD, MEASURED, SCENARIO = "workload.jsonl.gz", "measured.jsonl.gz", "scenario.yaml"
_FAILED = f": those without finish_s in {MEASURED}"
_MAX_LISTED = 20
_SPECULATION = (
    "the server decodes speculatively, or sends several tokens in a message. If it speculates, TPOT"
    " is not the time of a step: a simulated step gives each request one token"
)
MIN_BLOCK = 16


class ReadSource(NamedTuple):
    """A measured run, read and checked.

    Attributes:
        format: of the results.
        requests: in order of arrival.
        facts: what the results say about server and client.
        notes: remarks for the user.
    """

    format: str
    requests: list[ImportedRequest]
    facts: ServerFacts
    notes: tuple[str, ...]


def read_source(source: Path, format_: str | None, options: ReadOptions) -> ReadSource:
    """Read a measured run; the format is recognised if it is None.

    Raises:
        InputError: the source is bad, or no request can be replayed.
    """
    name = format_ or sniff(source)
    run = read_results(source, name, options)
    requests, num_taken_back = in_order(run.requests, str(source))
    if not any(request.has_lengths for request in requests):
        raise InputError(f"{source}: no request with a prompt and an output of known length")
    return ReadSource(name, requests, run.facts, tuple(_notes(run, requests, num_taken_back)))


def write_import(out: Path, requests: Sequence[ImportedRequest], scenario: str) -> None:
    """Write the three files of an import.

    The scenario is last: if it exists, all files are complete and of the same run.
    """
    make_directory(out)
    remove_file(out / SCENARIO)
    write_workload(requests, out / WORKLOAD)
    write_measured(measured_of(requests), out / MEASURED)
    write_text(out / SCENARIO, scenario)


def read_back(out: Path, block_size: int) -> WorkloadStats:
    """What the workload of the folder is like."""
    config = TraceConfig(kind="trace", format="servetwin", path=WORKLOAD)
    return workload_stats(build_workload(config, seed=0, base_dir=out), block_size)


def _notes(
    run: ImportedRun, requests: Sequence[ImportedRequest], num_taken_back: int
) -> Iterator[str]:
    yield from run.notes
    if (tokens := run.facts.tokens_at_a_time) is not None:
        yield f"tokens came {tokens:.3g} at a time: {_SPECULATION}"
    if num_taken_back:
        yield (
            f"{num_taken_back} scheduling times are left out: they are not between the request's"
            " arrival and its first token"
        )
    failed = [request for request in requests if request.failure]
    again = [f"{request.rid} ({request.failure})" for request in failed if request.has_lengths]
    never = [f"{request.rid} ({request.failure})" for request in failed if not request.has_lengths]
    if again:
        yield (
            f"failed, but in the workload with the tokens generated until then, {len(again)}:"
            f" {_listed(again, _FAILED)}"
        )
    if never:
        yield (
            f"failed, not in {WORKLOAD} because their lengths are unknown, {len(never)}:"
            f" {_listed(never, _FAILED)}"
        )
    if run.left_out:
        yield f"left out, {len(run.left_out)}: {_listed(run.left_out)}"


def _listed(names: Sequence[str], where: str = "") -> str:
    rest = len(names) - _MAX_LISTED
    more = f" and {rest} more{where}" if rest > 0 else ""
    return "; ".join(names[:_MAX_LISTED]) + more

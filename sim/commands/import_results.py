"""The steps of importing measured results: recognise the format, read, write, and show a table.

The results are those of a benchmark's client, or a log or dump of a server.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from sim.core.errors import InputError
from sim.core.files import all_or_none, write_text
from sim.core.packed import STDIN, open_file, read_lines
from sim.core.units import NS_PER_MS, NS_PER_S
from sim.families import RESULT_FORMATS, SERVER_LOG, open_server_log
from sim.runlog.run_log_file import write_measured
from sim.tables.table import aligned, number
from sim.workload.config import TraceConfig
from sim.workload.kinds.build import build_workload
from sim.workload.kinds.stats import WorkloadStats, workload_stats
from sim.workload.results import ResultFormat
from sim.workload.results.measured import in_order, measured_of, write_workload
from sim.workload.results.model import ImportedRequest, ImportedRun, ReadOptions, ServerFacts

# To recognise a format by its JSON keys, this many characters at the beginning of a file are read.
_NUM_SNIFFED_CHARS = 1 << 18
_KEY = re.compile(r'"(\w+)"\s*:', re.ASCII)
# What is only in servers' logs, and what to say of such a log if it has no requests.
_COMMAND_HINT = "simulate import makes a scenario of its server"
_SERVER_LOGS = {
    "server_args=ServerArgs(": (
        f"is a log of SGLang's server without requests: it has them with --log-requests;"
        f" {_COMMAND_HINT}"
    ),
    "non-default args: {": (
        f"is a log of vLLM's server, which has no times of requests: import the client's results;"
        f" {_COMMAND_HINT}"
    ),
}
# In reverse order, so that vLLM's benchmark comes before SGLang's: some of vLLM's results have the
# keys of SGLang's, too.
_BY_KEYS = [
    (keys, format_) for format_ in reversed(RESULT_FORMATS.values()) for keys in format_.key_sets
]


def sniff(path: Path) -> str:
    """The name of the format of a file or folder, recognised by its content."""
    if (name := recognise(path)) is not None and name != SERVER_LOG:
        return name
    _refuse_server_log(path)
    known = ", ".join(RESULT_FORMATS)
    raise InputError(f"{path}: is in none of the known formats: {known} (choose one by --from)")


def recognise(path: Path) -> str | None:
    """The name of the format, also that of a server's own log; None: it is none of them."""
    if path.exists() and not (path.is_dir() or path.is_file()):
        # It is read twice: once to recognise the format.
        raise InputError(f"{path}: is no regular file: save it to one first")
    found = _sniff_folder(path) if path.is_dir() else _sniff_file(path)
    if found is not None:
        return found.name
    is_file = path == STDIN or path.is_file()
    return SERVER_LOG if is_file and is_server_log(path) else None


def is_server_log(path: Path) -> bool:
    """Whether a server wrote the file as its own log, also if it has requests in it."""
    try:
        open_server_log([path])
    except InputError:
        return False
    return True


def _refuse_server_log(path: Path) -> None:
    """Raise InputError, which says what is missing, if the file is a server's log.

    It has no requests, or it would have been recognised.
    """
    if path.is_dir():
        return
    for text in _texts(path):
        for mark, reason in _SERVER_LOGS.items():
            if mark in text:
                raise InputError(f"{path}: {reason}")


def read_results(path: Path, name: str, options: ReadOptions) -> ImportedRun:
    """Read a measured run; `name` is that of its format.

    Raises InputError: it cannot be read, or an option does not go with the format.
    """
    if path != STDIN and not path.exists():
        raise InputError(f"{path}: cannot be read: No such file or directory")
    format_ = RESULT_FORMATS[name]
    read: Callable[..., ImportedRun] = _load(format_.reader)
    if format_.is_bench:
        return read(path, options)
    for option, value in zip(("--line", "--draw-arrivals"), options, strict=True):
        if value is not None:
            benches = " and ".join(each.name for each in RESULT_FORMATS.values() if each.is_bench)
            raise InputError(f"{option}: goes with {benches} only, but {path} is {name}")
    return read(path)


def _load(place: str) -> Any:
    """The function that `module:function` names."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def _is_json(text: str) -> bool:
    """Whether a line may be JSON; a line of a log begins with a time in brackets."""
    return not text.startswith("[") or text[1:].lstrip()[:1] in {"", "{"}


def _sniff_folder(path: Path) -> ResultFormat | None:
    tests = [each for each in RESULT_FORMATS.values() if each.folder_test]
    # In reverse order: a folder with requests.jsonl is LLMServingSim's even if it has *.pkl files.
    for format_ in reversed(tests):
        if _load(format_.folder_test)(path):
            return format_
    return None


def _sniff_file(path: Path) -> ResultFormat | None:
    try:
        with open_file(path) as file:
            first = file.read(1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    for format_ in RESULT_FORMATS.values():
        if first and format_.first_byte == first:
            return format_
    line_tests = [
        (_load(format_.line_test), format_)
        for format_ in RESULT_FORMATS.values()
        if format_.line_test
    ]
    keys: set[str] = set()
    num_seen = 0
    for text in _texts(path):
        if num_seen < _NUM_SNIFFED_CHARS and _is_json(text):
            keys |= set(_KEY.findall(text[: _NUM_SNIFFED_CHARS - num_seen]))
            num_seen += len(text)
            for needed, format_ in _BY_KEYS:
                if needed <= keys:
                    return format_
        for test, format_ in line_tests:
            if test(text):
                return format_
    return None


def _texts(path: Path) -> Iterator[str]:
    """The lines, also of a log that is not all UTF-8."""
    for line in read_lines(path):
        yield line.decode("utf-8-sig", errors="replace")


WORKLOAD, MEASURED, SCENARIO = "workload.jsonl.gz", "measured.jsonl.gz", "scenario.yaml"
_FAILED = f": those without finish_s in {MEASURED}"
_MAX_LISTED = 20
_SPECULATION = (
    "the server decodes speculatively, or sends several tokens in a message. If it speculates, TPOT"
    " is not the time of a step: a simulated step gives each request one token"
)
# The least block size, in tokens, for which the table shows how much of the prompts is shared.
MIN_BLOCK = 16


class ReadSource(NamedTuple):
    """A measured run, read and checked.

    `format` is that of the results, `facts` are what they say about server and client, and `notes`
    are remarks for the user.
    """

    format: str
    requests: list[ImportedRequest]
    facts: ServerFacts
    notes: tuple[str, ...]


def read_source(source: Path, format_: str | None, options: ReadOptions) -> ReadSource:
    """Read a measured run; the format is recognised if it is None."""
    name = format_ or sniff(source)
    run = read_results(source, name, options)
    requests, num_taken_back = in_order(run.requests, str(source))
    if not any(request.has_lengths for request in requests):
        raise InputError(f"{source}: no request with a prompt and an output of known length")
    return ReadSource(name, requests, run.facts, tuple(_notes(run, requests, num_taken_back)))


def write_import(out: Path, requests: Sequence[ImportedRequest], scenario: str) -> None:
    """Write the three files of an import, or none.

    The scenario is last: if it exists, all files are complete and of the same run.
    """
    with all_or_none(out, (WORKLOAD, MEASURED, SCENARIO)) as folder:
        write_workload(requests, folder / WORKLOAD)
        write_measured(measured_of(requests), folder / MEASURED)
        write_text(folder / SCENARIO, scenario)


def read_back(out: Path, block_size: int) -> WorkloadStats:
    """Statistics of the workload that the folder has now."""
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
    for has_lengths, what in (
        (True, "but in the workload with the tokens generated until then"),
        (False, f"not in {WORKLOAD} because their lengths are unknown"),
    ):
        failed = [one for one in requests if one.failure and one.has_lengths is has_lengths]
        if failed:
            names = [f"{one.rid} ({one.failure})" for one in failed]
            yield f"failed, {what}, {len(names)}: {_listed(names, _FAILED)}"
    if run.left_out:
        yield f"left out, {len(run.left_out)}: {_listed(run.left_out)}"


def _listed(names: Sequence[str], where: str = "") -> str:
    rest = len(names) - _MAX_LISTED
    more = f" and {rest} more{where}" if rest > 0 else ""
    return "; ".join(names[:_MAX_LISTED]) + more


def import_table(
    format_: str, requests: Sequence[ImportedRequest], stats: WorkloadStats
) -> list[str]:
    """The lines of the table. TTFT, TPOT and latency are those of finished requests.

    As in `calibrate validate`, a request with one output token counts, with a TPOT of about 0.
    """
    failed = [request for request in requests if request.failure]
    ends = [request.finish_ns or request.arrival_ns for request in requests]
    is_known = any(request.prompt_ids is not None for request in requests)
    shared = f"{stats.token_hit_pct:.1f}" if is_known else "not known"
    ttfts_ns = [
        one.first_token_ns - one.arrival_ns
        for one in requests
        if one.first_token_ns is not None and not one.failure
    ]
    tpots_ns = [
        (one.finish_ns - one.first_token_ns) / max(1, one.output_tokens - 1)
        for one in requests
        if one.finish_ns is not None
        and one.first_token_ns is not None
        and one.output_tokens is not None
    ]
    latencies_ns = [one.finish_ns - one.arrival_ns for one in requests if one.finish_ns is not None]
    rows = [
        ["results", "", format_],
        ["requests", "", number(len(requests))],
        ["failed", "", number(len(failed))],
        ["in the workload", "", number(stats.num_requests)],
        ["last arrival", "s", number(requests[-1].arrival_ns / NS_PER_S)],
        ["last token", "s", number(max(ends) / NS_PER_S)],
        ["prompt tokens, mean", "", number(stats.input_tokens.mean)],
        ["output tokens, mean", "", number(stats.output_tokens.mean)],
        [f"shared prefixes, in blocks of {stats.block_size}", "%", shared],
        ["TTFT, mean", "ms", _mean_ms(ttfts_ns)],
        ["TPOT, mean", "ms", _mean_ms(tpots_ns)],
        ["latency, mean", "ms", _mean_ms(latencies_ns)],
    ]
    return aligned(rows, gap=2, right={2})


def _mean_ms(times_ns: Sequence[float]) -> str:
    return number(sum(times_ns) / len(times_ns) / NS_PER_MS if times_ns else None)

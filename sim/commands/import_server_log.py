"""`simulate import SERVER.LOG`: a scenario of the server that wrote a log."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from operator import itemgetter
from pathlib import Path, PurePosixPath
from statistics import fmean
from typing import Any, NamedTuple

from sim.commands import import_results as results
from sim.commands.import_commands import DRAFTS, UNKNOWN_ACCEPTANCE, sections_of
from sim.commands.output import check_folder, print_line
from sim.commands.recorded_scenario import (
    TRAFFIC,
    Hint,
    known_model,
    runnable,
    scenario_name,
    scenario_text,
)
from sim.core.errors import InputError, say, shorten
from sim.core.files import all_or_none, write_text
from sim.core.flags import split_command
from sim.core.units import MAX_TIME_NS
from sim.engine.server_config import BOTH
from sim.families import FAMILIES, open_server_log
from sim.family import Family
from sim.family.launch_command import ServerSettings, weight_formats
from sim.latency.architectures.model_key import bundled_models, variant_of
from sim.scenario.load import load_scenario_text, refuse_user_classes
from sim.server_log.read import ServerLog
from sim.server_log.records import Kind, LoggedServer
from sim.server_log.traffic import LoggedRequests, RequestCounter, spread_evenly
from sim.tables.table import aligned, number
from sim.workload.bench_command import read_bench_command
from sim.workload.results.measured import write_workload
from sim.workload.results.model import ImportedRequest, ReadOptions

_NS_PER_US = 1_000
# How the folder of a model in the cache of Hugging Face begins.
_STORED = "models--"
_GIVE_TRAFFIC = (
    "give --results FILE, a client's results, or --command LINE, that of a benchmark's client"
)
_PLACEHOLDER_TRAFFIC = {
    "kind": "synthetic",
    "num_requests": 200,
    "arrivals": {"kind": "poisson", "rate_rps": 1},
    "prompt_tokens": {"kind": "constant", "value": 1000},
    "output_tokens": {"kind": "constant", "value": 200},
}
_NO_TRAFFIC = (
    "PLACEHOLDER: this log does not say how long its requests were, so this traffic is invented:"
    f" {_GIVE_TRAFFIC}."
)


_ROUTER = (
    "The logs do not say which rule chose the server of a request: set router. Arrivals are those"
    " of all logs together, as if their clocks were one."
)


class LogOptions(NamedTuple):
    """What a user says of a log: GPU, model, and where the traffic is from."""

    hardware: str | None
    model: str | None
    command: str | None
    results: Path | None
    read: ReadOptions


class _Traffic(NamedTuple):
    """The workload of the scenario, comments on it, and the requests of its files.

    `is_measured`: they have times, so that the measured run is written, too.
    """

    workload: dict[str, Any]
    hints: Sequence[Hint]
    requests: Sequence[ImportedRequest] = ()
    is_measured: bool = False


def import_server_log(
    sources: Sequence[Path], options: LogOptions, out: Path, *, is_fleet: bool = False
) -> None:
    """Write the scenario of a log's server, with its traffic, and say what is not known.

    A rotated log has several files. With `is_fleet`, each is the log of another of equal servers.

    Raises InputError: the log does not have the server's settings, its model is not known, the
    server cannot be simulated, or the servers of a fleet are not equal.
    """
    if options.hardware is None:
        raise InputError(f"{sources[0]}: --hardware: is needed: a log does not name the GPU")
    if None not in (options.command, options.results):
        raise InputError("--command: goes without --results: both are the traffic")
    for source in sources:
        check_folder(out, source)
    groups = [[source] for source in sources] if is_fleet else [sources]
    read = [_read(open_server_log(files)) for files in groups]
    traffic = _traffic_of(options, read)
    data, hints = _compose_fleet(sources[0], [each.log for each in read], options, traffic)
    if DRAFTS.intersection(data["scheduler"]):
        data["acceptance"], hint = _acceptance([each.accepted_tokens for each in read])
        hints.append(hint)
    with _flags_of(read[0].log.name):
        # The files of the traffic are not written yet.
        other, hints = runnable({**data, "workload": dict(_PLACEHOLDER_TRAFFIC)}, hints, out)
    data = {**other, "workload": traffic.workload}
    text = scenario_text(data, hints)
    refuse_user_classes(load_scenario_text(text, name=str(out / results.SCENARIO), base_dir=out))
    _write(out, traffic, text)
    for row in _table(data, [each.log for each in read]):
        print_line(row)
    notes = dict.fromkeys(note for each in read for note in each.log.notes())
    for note in (*notes, *(hint.text for hint in hints if hint.section)):
        say(f"servetwin: {' '.join(note.split())}")
    print_line("")
    print_line(f"next: simulate run {out / results.SCENARIO}")
    if traffic.is_measured:
        files = f"{out / results.SCENARIO} {out / results.MEASURED}"
        print_line(f"      calibrate validate {files}")


@contextmanager
def _flags_of(name: str) -> Iterator[None]:
    """Let errors about the flags of a launch command, given by --server, name the log instead."""
    try:
        yield
    except InputError as error:
        before, option, reason = str(error).partition("--server:")
        raise InputError(f"{name}:{reason}" if option and not before else str(error)) from None


class _ReadLog(NamedTuple):
    """A log that was read to its end.

    Attributes:
        requests: those of its last start; None: its lines do not tell them.
        accepted_tokens: of a step in the mean; None: it has no drafts.
    """

    log: ServerLog
    requests: LoggedRequests | None
    accepted_tokens: float | None


def _read(log: ServerLog) -> _ReadLog:
    counter, was_ready = RequestCounter(log.name), False
    for event in log.events():
        server = log.server
        if server.is_ready and not was_ready:
            counter.begin()
            counter.decode_steps = _count(server, "decode_log_interval")
            counter.chunk = _count(server, "chunked_prefill_size") or 0
        elif event.kind is Kind.ITERATION and not counter.chunk:
            counter.chunk = _count(server, "max_num_batched_tokens") or 0
        was_ready = server.is_ready
        counter.take(event)
    if not log.server.flags:
        reason = "has no line of the server's settings: the log's beginning is missing"
        raise InputError(f"{log.name}: {reason}")
    return _ReadLog(log, counter.requests(), counter.accepted_tokens_per_step)


def _count(server: LoggedServer, flag: str) -> int | None:
    value = server.flags.get(flag, server.settings.get(flag))
    return value if type(value) is int and value > 0 else None


def _traffic_of(options: LogOptions, read: Sequence[_ReadLog]) -> _Traffic:
    if options.results is not None:
        given = results.read_source(options.results, None, options.read)
        hints = [Hint("workload", f"Traffic of {options.results.name}."),
                 *(Hint("workload", note) for note in given.notes)]  # fmt: skip
        return _Traffic(dict(TRAFFIC), hints, given.requests, is_measured=True)
    if options.command is not None:
        bench = read_bench_command(split_command(options.command, "--command"))
        return _Traffic(bench.workload, [Hint("workload", note) for note in bench.notes])
    told = [(each.log, each.requests) for each in read if each.requests is not None]
    if not told:
        return _Traffic(dict(_PLACEHOLDER_TRAFFIC), [Hint("workload", _NO_TRAFFIC)])
    return _rebuilt(told)


def _rebuilt(told: Sequence[tuple[ServerLog, LoggedRequests]]) -> _Traffic:
    """The requests of all logs together, by their times."""
    rows: list[tuple[int, int, int]] = []
    hints = []
    for log, logged in told:
        times_us = spread_evenly(logged.at_us, log.resolution_us)
        rows += zip(times_us, logged.prompt_tokens, logged.output_tokens, strict=True)
        text = f"{logged.certainty}; the log has {logged.num_posts:,} POST requests."
        hints.append(Hint("workload", text if len(told) == 1 else f"{log.name}: {text}"))
    rows.sort(key=itemgetter(0))
    first_us = rows[0][0]
    if rows[-1][0] - first_us > MAX_TIME_NS // _NS_PER_US:
        reason = "its times are further apart than a simulation can be long"
        raise InputError(f"{told[0][0].name}: {reason}")
    requests = [
        ImportedRequest(
            rid=str(place),
            arrival_ns=(at_us - first_us) * _NS_PER_US,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
        )
        for place, (at_us, prompt_tokens, output_tokens) in enumerate(rows)
    ]
    return _Traffic(dict(TRAFFIC), hints, requests)


def _compose_fleet(
    source: Path, logs: Sequence[ServerLog], options: LogOptions, traffic: _Traffic
) -> tuple[dict[str, Any], list[Hint]]:
    """The scenario of equal servers, with the smallest of their KV pools."""
    pool = min((log.server.kv_pool for log in logs), key=lambda pool: pool.num_tokens or inf)
    system = str(options.hardware).replace("-", "_")
    composed = []
    for log in logs:
        log.server.kv_pool = pool
        with _flags_of(log.name):
            composed.append(_compose(source, log, options.model, system, traffic))
    data, hints = composed[0]
    for log, (other, _) in zip(logs, composed, strict=True):
        for key in data.keys() | other.keys():
            if data.get(key) != other.get(key):
                reason = f"its {key} is another than that of {logs[0].name}"
                raise InputError(f"{log.name}: {reason}; the servers of a fleet must be equal")
    if len(logs) > 1:
        data["replicas"] = len(logs) * data.get("replicas", 1)
        hints.append(Hint("replicas", _ROUTER))
    return data, hints


def _compose(
    source: Path, log: ServerLog, given_model: str | None, system: str, traffic: _Traffic
) -> tuple[dict[str, Any], list[Hint]]:
    server = log.server
    family = FAMILIES[server.engine]
    settings = _settings(family, log, given_model, system)
    sections, hints = sections_of(settings, system)
    section = sections["scheduler"]
    pool = family.measured_pool(server, section, settings.model, settings.parallel["tp"])
    for key, value in pool.items():
        hints.append(Hint("scheduler", f"{key} {value} is what the server measured."))
    if not pool:
        hints.append(
            Hint("scheduler", "The log does not say how large the pool is: it is derived.")
        )
    section |= pool
    order = ("latency", "host", "workload", "store", "scheduler", "replicas")
    sections["workload"] = traffic.workload
    data = {"name": scenario_name(source), "model": settings.model}
    data |= {key: sections[key] for key in order if key in sections}
    begin = f"From {source.name}: {family.title} {server.version or 'of unknown version'}"
    top = Hint("", f"{begin}, by its {server.flags_from}.")
    if not server.version:
        newest = family.section().model_fields["version"].default
        text = f"The log has no version: rules are those of {newest}; set scheduler.version."
        hints.append(Hint("scheduler", text))
    if settings.unknown:
        hints.append(Hint("scheduler", f"Not known: {shorten('; '.join(settings.unknown))}."))
    return data, [top, *hints, *traffic.hints]


def _settings(
    family: Family, log: ServerLog, given_model: str | None, system: str
) -> ServerSettings:
    settings = family.read_launch(family.launch_of_log(log.server), system)
    if settings is None or settings.roles != (BOTH,):
        role = "" if settings is None else f" {settings.roles[0]}"
        raise InputError(
            f"{log.name}: is of a{role} server, which needs others: give --command and a --server"
            " for each of their command lines"
        )
    model, formats = model_of_log(log, given_model)
    return settings._replace(model=model, quantization={**formats, **settings.quantization})


def model_of_log(log: ServerLog, given: str | None) -> tuple[str, dict[str, str]]:
    """The scenario's model, as given or as the log names it; and formats that differ from its own.

    A path in the log is one of another machine: nothing is read there, and its last part counts.

    Raises InputError: it is not known.
    """
    if given is not None and Path(given).exists():
        return str(Path(given).resolve()), {}
    name = given or _id_of(log.server.model)
    for key in (name, name.rpartition("/")[2]):
        if (found := known_model(key)) is not None:
            return found, {}
    if name in bundled_models():
        return name, {}
    if (variant := variant_of(name)) is not None:
        return variant.model, weight_formats(variant.weights)
    where, hint = ("--model", "") if given else (log.name, " give it with --model:")
    raise InputError(
        f"{where}: model {shorten(name or 'without a name')} is not known:{hint} a Hugging Face id,"
        " or a folder with its config.json"
    )


def _id_of(logged: str) -> str:
    """The id that a path in Hugging Face's cache has, `models--org--name/...`; else the path."""
    stored = next((part for part in PurePosixPath(logged).parts if part.startswith(_STORED)), "")
    return stored.removeprefix(_STORED).replace("--", "/", 1) or logged.rstrip("/")


def _acceptance(accepted_tokens: Sequence[float | None]) -> tuple[dict[str, float], Hint]:
    known = [tokens for tokens in accepted_tokens if tokens is not None]
    if not known:
        text = "PLACEHOLDER: this log does not say how many draft tokens were accepted."
        return dict(UNKNOWN_ACCEPTANCE), Hint("acceptance", text)
    mean_length = round(max(1.0, fmean(known)), 4)
    text = f"A step yielded {mean_length} tokens of a request in the mean, by the log."
    return {"mean_length": mean_length}, Hint("acceptance", text)


def _write(out: Path, traffic: _Traffic, text: str) -> None:
    if traffic.is_measured:
        results.write_import(out, traffic.requests, text)
        return
    names = [results.WORKLOAD] if traffic.requests else []
    with all_or_none(out, (*names, results.SCENARIO)) as folder:
        if traffic.requests:
            write_workload(traffic.requests, folder / results.WORKLOAD)
        write_text(folder / results.SCENARIO, text)


def _table(data: dict[str, Any], logs: Sequence[ServerLog]) -> Iterator[str]:
    server = logs[0].server
    counts = sum((log.counts for log in logs), Counter[Kind]())
    parallel = {key: data["latency"].get(key, 1) for key in ("tp", "dp", "pp")}
    pool = server.kv_pool.num_tokens
    rows = [
        *([["servers", "", number(len(logs))]] if len(logs) > 1 else ()),
        ["server", "", f"{FAMILIES[server.engine].title} {server.version}".strip()],
        ["model", "", data["model"]],
        ["GPUs", "", " x ".join(f"{key} {size}" for key, size in parallel.items() if size > 1)
         or "1"],
        ["KV pool, measured", "tokens", "not known" if pool is None else number(pool)],
        *([f"lines: {kind.value}", "", number(counts[kind])] for kind in Kind if counts[kind]),
        ["lines: not understood", "", number(sum(log.num_not_understood for log in logs))],
    ]  # fmt: skip
    yield from aligned(rows, gap=2, right={2})

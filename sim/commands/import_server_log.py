"""`simulate import SERVER.LOG`: a scenario of the server that wrote a log."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from sim.commands import import_results as results
from sim.commands.import_commands import DRAFTS, UNKNOWN_ACCEPTANCE, sections_of
from sim.commands.output import check_folder, print_line
from sim.commands.recorded_scenario import TRAFFIC, Hint, known_model, scenario_name, scenario_text
from sim.commands.runnable import runnable
from sim.core.errors import InputError, say, shorten
from sim.core.files import all_or_none, write_text
from sim.core.flags import split_command
from sim.core.units import MAX_TIME_NS
from sim.engine.server_config import BOTH
from sim.families import FAMILIES, open_server_log
from sim.family import Family
from sim.family.launch_command import ServerSettings
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


def import_server_log(sources: Sequence[Path], options: LogOptions, out: Path) -> None:
    """Write the scenario of a log's server, with its traffic, and say what is not known.

    A rotated log has several files.

    Raises:
        InputError: the log does not have the server's settings, its model is not known, or the
            server cannot be simulated.
    """
    if options.hardware is None:
        raise InputError(f"{sources[0]}: --hardware: is needed: a log does not name the GPU")
    if None not in (options.command, options.results):
        raise InputError("--command: goes without --results: both are the traffic")
    for source in sources:
        check_folder(out, source)
    log = open_server_log(sources)
    requests, accepted_tokens = _read(log)
    traffic = _traffic_of(options, log, requests)
    if not log.server.flags:
        reason = "has no line of the server's settings: the log's beginning is missing"
        raise InputError(f"{log.name}: {reason}")
    with _flags_of(log.name):
        system = options.hardware.replace("-", "_")
        data, hints = _compose(sources[0], log, options.model, system, traffic)
        if DRAFTS.intersection(data["scheduler"]):
            data["acceptance"], hint = _acceptance(accepted_tokens)
            hints.append(hint)
        # The files of the traffic are not written yet.
        other, hints = runnable({**data, "workload": dict(_PLACEHOLDER_TRAFFIC)}, hints, out)
    data = {**other, "workload": traffic.workload}
    text = scenario_text(data, hints)
    refuse_user_classes(load_scenario_text(text, name=str(out / results.SCENARIO), base_dir=out))
    _write(out, traffic, text)
    for row in _table(log.server, data, log):
        print_line(row)
    for note in (*log.notes(), *(hint.text for hint in hints if hint.section)):
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


def _read(log: ServerLog) -> tuple[LoggedRequests | None, float | None]:
    """Read all of the log; the requests of its last start, and tokens accepted in a step.

    None: its lines do not tell them, or it has no drafts.
    """
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
    return counter.requests(), counter.accepted_tokens_per_step


def _count(server: LoggedServer, flag: str) -> int | None:
    value = server.flags.get(flag, server.settings.get(flag))
    return value if type(value) is int and value > 0 else None


def _traffic_of(options: LogOptions, log: ServerLog, logged: LoggedRequests | None) -> _Traffic:
    if options.results is not None:
        read = results.read_source(options.results, None, options.read)
        hints = [Hint("workload", f"Traffic of {options.results.name}."),
                 *(Hint("workload", note) for note in read.notes)]  # fmt: skip
        return _Traffic(dict(TRAFFIC), hints, read.requests, is_measured=True)
    if options.command is not None:
        bench = read_bench_command(split_command(options.command, "--command"))
        return _Traffic(bench.workload, [Hint("workload", note) for note in bench.notes])
    if logged is None:
        return _Traffic(dict(_PLACEHOLDER_TRAFFIC), [Hint("workload", _NO_TRAFFIC)])
    return _rebuilt(log, logged)


def _rebuilt(log: ServerLog, logged: LoggedRequests) -> _Traffic:
    times_us = list(spread_evenly(logged.at_us, log.resolution_us))
    if times_us[-1] - times_us[0] > MAX_TIME_NS // _NS_PER_US:
        reason = "its times are further apart than a simulation can be long"
        raise InputError(f"{log.name}: {reason}")
    requests = [
        ImportedRequest(
            rid=str(place),
            arrival_ns=(at_us - times_us[0]) * _NS_PER_US,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
        )
        for place, (at_us, prompt_tokens, output_tokens) in enumerate(
            zip(times_us, logged.prompt_tokens, logged.output_tokens, strict=True)
        )
    ]
    text = f"{logged.certainty}; the log has {logged.num_posts:,} POST requests."
    return _Traffic(dict(TRAFFIC), [Hint("workload", text)], requests)


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
    order = ("latency", "host", "workload", "scheduler", "replicas")
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

    Raises:
        InputError: it is not known.
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
        formats = {part: variant.weights for part in ("gemm", "moe") if variant.weights}
        return variant.model, formats
    where, hint = ("--model", "") if given else (log.name, " give it with --model:")
    raise InputError(
        f"{where}: model {shorten(name or 'without a name')} is not known:{hint} a Hugging Face id,"
        " or a folder with its config.json"
    )


def _id_of(logged: str) -> str:
    """The id that a path in Hugging Face's cache has, `models--org--name/...`; else the path."""
    stored = next((part for part in PurePosixPath(logged).parts if part.startswith(_STORED)), "")
    return stored.removeprefix(_STORED).replace("--", "/", 1) or logged.rstrip("/")


def _acceptance(accepted_tokens: float | None) -> tuple[dict[str, float], Hint]:
    if accepted_tokens is None:
        text = "PLACEHOLDER: this log does not say how many draft tokens were accepted."
        return dict(UNKNOWN_ACCEPTANCE), Hint("acceptance", text)
    mean_length = round(max(1.0, accepted_tokens), 4)
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


def _table(server: LoggedServer, data: dict[str, Any], log: ServerLog) -> Iterator[str]:
    parallel = {key: data["latency"].get(key, 1) for key in ("tp", "dp", "pp")}
    pool = server.kv_pool.num_tokens
    rows = [
        ["server", "", f"{FAMILIES[server.engine].title} {server.version}".strip()],
        ["model", "", data["model"]],
        ["GPUs", "", " x ".join(f"{key} {size}" for key, size in parallel.items() if size > 1)
         or "1"],
        ["KV pool, measured", "tokens", "not known" if pool is None else number(pool)],
        *([f"lines: {kind.value}", "", number(log.counts[kind])] for kind in Kind
          if log.counts[kind]),
        ["lines: not understood", "", number(log.num_not_understood)],
    ]  # fmt: skip
    yield from aligned(rows, gap=2, right={2})

"""Fits a latency profile, and a cold start, to the logs of one server under several loads."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from calibrate.dataset import Sample
from calibrate.errors_by_mode import decode_spread
from calibrate.fit_mode import fit_mode
from calibrate.server_logs.chains import fit_chains
from calibrate.server_logs.iterations import read_iterations
from calibrate.server_logs.steps import read_times
from calibrate.server_logs.stretches import fit_stretches
from calibrate.server_logs.times import ExtendFit, LoggedTimes
from sim.core.batch import ForwardMode
from sim.core.errors import InputError
from sim.families import open_server_log
from sim.latency.features import StepFeatures, graph_rows
from sim.latency.profile.format import (
    SCHEMA_VERSION,
    Errors,
    FittedTerms,
    HostModel,
    LatencyProfile,
    Source,
    Term,
)
from sim.server_log.read import ServerLog, logs_of
from sim.vllm.family import VllmFamily

# Flags that change how long a step takes.
_OF_STEPS = (
    "tp_size", "dp_size", "ep_size", "pp_size", "quantization", "kv_cache_dtype",
    "attention_backend", "disable_cuda_graph", "speculative_algorithm",
    "tensor_parallel_size", "data_parallel_size", "pipeline_parallel_size",
    "enable_expert_parallel", "enforce_eager", "speculative_config", "async_scheduling",
)  # fmt: skip
_FEWEST_DECODES, _FEWEST_STRETCHES = 8, 4
_NONE = Errors(points=0, mape_pct=0, p50_pct=0, p95_pct=0, max_pct=0, total_pct=0, outliers=0)
_NOTHING = FittedTerms(terms=(Term(term="constant", ns=0.0),), errors=_NONE)
_NO_HOST = tuple(
    HostModel(scheduling=scheduling, modes={"decode": _NOTHING, "extend": _NOTHING})
    for scheduling in ("overlap", "normal")
)


class ServerFit(NamedTuple):
    """What was fitted to a server's logs.

    Attributes:
        profile: times of decode and prefill steps, from one step to the next: the host's time
            between two steps is in them.
        extend: what was fitted to steps with prompts.
        logs: the logs, read to their ends.
        num_decodes, num_prefills: how many times were fitted.
    """

    profile: LatencyProfile
    extend: ExtendFit
    logs: Sequence[ServerLog]
    num_decodes: int
    num_prefills: int


def fit_server_logs(paths: Sequence[Path], *, name: str, label: str, seed: int) -> ServerFit:
    """Fit the times of a server's steps to its logs, under as many loads as there are.

    Files that rotation made of one log are one log.

    Raises:
        InputError: a log cannot be read, is of another server, or too few steps can be told apart.
    """
    logs = [open_server_log(files) for files in logs_of(paths)]
    read = [_read(log) for log in logs]
    _check_one_server(logs)
    ran_in_graphs = any(time.in_graph for times in read for time in times.decodes)
    graphs = logs[-1].server.graph_sizes if ran_in_graphs else ()
    samples = [_sample(*time, graphs) for times in read for time in times.decodes]
    num_prefills = sum(times.num_prefills for times in read)
    if len(samples) < _FEWEST_DECODES or num_prefills < _FEWEST_STRETCHES:
        raise InputError(
            f"{', '.join(log.name for log in logs)}: {len(samples)} groups of decode steps and"
            f" {num_prefills} stretches with prefills are too few to fit"
        )
    decode = fit_mode(samples, graphs, num_folds=5, seed=seed)
    if any(times.chains for times in read):
        extend = fit_chains(read, decode.model, graphs, seed=seed)
    else:
        extend = fit_stretches(read, decode.model, graphs)
    model = logs[-1].server.model
    profile = LatencyProfile(
        schema_version=SCHEMA_VERSION,
        name=name,
        label=label,
        fingerprint={"engine": logs[-1].server.engine, "model": model},
        model=model,
        created_from=tuple(
            Source(file=log.paths[-1].name, source="server log", points=0, steps=len(times.decodes))
            for log, times in zip(logs, read, strict=True)
        ),
        graph_sizes=graphs,
        modes={"decode": decode.model, "extend": extend.model},
        host=_NO_HOST,
        decode_spread=decode_spread(samples, decode.held_out_ns),
    )
    return ServerFit(profile, extend, logs, len(samples), num_prefills)


def _read(log: ServerLog) -> LoggedTimes:
    read_log = read_iterations if log.server.engine == VllmFamily.name else read_times
    times = read_log(log)
    if not times.decodes:
        reason = "too few decode lines that tell a time, away from prefills"
        raise InputError(f"{log.name}: {reason}, so nothing to fit")
    return times


def _check_one_server(logs: Sequence[ServerLog]) -> None:
    known = logs[0].server
    for log in logs[1:]:
        for what in ("engine", "model"):
            first, other = getattr(known, what), getattr(log.server, what)
            if first != other:
                reason = (
                    f"{what} is {other!r}, but {logs[0].name} has {first!r}: one server at a time"
                )
                raise InputError(f"{log.name}: {reason}")
        for flag in _OF_STEPS:
            first, other = known.flags.get(flag), log.server.flags.get(flag)
            if first != other:
                reason = (
                    f"{flag} is {other!r}, but {logs[0].name} has {first!r}: one server at a time"
                )
                raise InputError(f"{log.name}: {reason}")


def _sample(
    num_rows: int, num_tokens: int, step_ns: float, in_graph: bool, graphs: Sequence[int]
) -> Sample:
    step = StepFeatures(ForwardMode.DECODE, 0, 0, 0, num_rows, num_tokens, num_tokens)
    return Sample(
        step=step,
        graph=graph_rows(num_rows, graphs) if in_graph else 0,
        device_ns=step_ns,
        host_ns=None,
        scheduling="not measured",
        max_decode_context=None,
    )

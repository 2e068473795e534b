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
from calibrate.server_logs.times import LoggedTimes
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
    ModeName,
    Source,
    Term,
)
from sim.server_log.records import LoggedServer
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


class ServerFit(NamedTuple):
    """What was fitted to a server's logs.

    Attributes:
        profile: times of decode and prefill steps, from one step to the next: the host's time
            between two steps is in them.
        cold_start_s: how much longer the first batches after an idle time take.
        cold_start_tokens: half of the smallest such prompts together: a limit that all exceed.
        server: what the last log says of the server.
        notes: what the logs had that was not read.
        num_decodes, num_prefills: how many times were fitted.
    """

    profile: LatencyProfile
    cold_start_s: float
    cold_start_tokens: int
    server: LoggedServer
    notes: Sequence[str]
    num_decodes: int
    num_prefills: int


def fit_server_logs(paths: Sequence[Path], *, name: str, label: str, seed: int) -> ServerFit:
    """Fit the times of a server's steps to its logs, under as many loads as there are.

    Raises:
        InputError: a log cannot be read, is of another server, or too few steps can be told apart.
    """
    logs = [(path, open_server_log([path])) for path in paths]
    read: list[tuple[Path, LoggedTimes]] = []
    for path, log in logs:
        read_log = read_iterations if log.server.engine == VllmFamily.name else read_times
        times = read_log(log, path)
        if not times.decodes:
            reason = "too few decode lines that tell a time, away from prefills"
            raise InputError(f"{path}: {reason}, so nothing to fit")
        read.append((path, times))
    servers = [log.server for _, log in logs]
    _check_one_server(paths, servers)
    ran_in_graphs = any(time.in_graph for _, times in read for time in times.decodes)
    graphs = servers[-1].graph_sizes if ran_in_graphs else ()
    samples = [_sample(*time, graphs) for _, times in read for time in times.decodes]
    all_times = [times for _, times in read]
    num_prefills = sum(times.num_prefills for times in all_times)
    if len(samples) < _FEWEST_DECODES or num_prefills < _FEWEST_STRETCHES:
        raise InputError(
            f"{', '.join(map(str, paths))}: {len(samples)} groups of decode steps and"
            f" {num_prefills} stretches with prefills are too few to fit"
        )
    decode = fit_mode(samples, graphs, num_folds=5, seed=seed)
    has_chains = any(times.chains for times in all_times)
    extend = (
        fit_chains(all_times, decode.model, graphs, seed=seed)
        if has_chains
        else fit_stretches(all_times, decode.model, graphs)
    )
    profile = LatencyProfile(
        schema_version=SCHEMA_VERSION,
        name=name,
        label=label,
        fingerprint={"engine": servers[-1].engine, "model": servers[-1].model},
        model=servers[-1].model,
        created_from=tuple(
            Source(file=path.name, source="server log", points=0, steps=len(times.decodes))
            for path, times in read
        ),
        graph_sizes=graphs,
        modes={"decode": decode.model, "extend": extend.model},
        host=(HostModel(scheduling="overlap", modes=_NO_HOST),
              HostModel(scheduling="normal", modes=_NO_HOST)),
        decode_spread=decode_spread(samples, decode.held_out_ns),
    )  # fmt: skip
    return ServerFit(
        profile=profile,
        cold_start_s=extend.cold_start_s,
        cold_start_tokens=extend.cold_start_tokens,
        server=servers[-1],
        notes=[f"{path.name}: {note}" for path, log in logs for note in log.notes()],
        num_decodes=len(samples),
        num_prefills=num_prefills,
    )


_NO_HOST: dict[ModeName, FittedTerms] = {
    "decode": FittedTerms(terms=(Term(term="constant", ns=0.0),), errors=_NONE),
    "extend": FittedTerms(terms=(Term(term="constant", ns=0.0),), errors=_NONE),
}


def _check_one_server(paths: Sequence[Path], servers: Sequence[LoggedServer]) -> None:
    for path, server in zip(paths, servers, strict=True):
        for what in ("engine", "model"):
            first, other = getattr(servers[0], what), getattr(server, what)
            if first != other:
                reason = f"{what} is {other!r}, but {paths[0]} has {first!r}: one server at a time"
                raise InputError(f"{path}: {reason}")
        for flag in _OF_STEPS:
            first, other = servers[0].flags.get(flag), server.flags.get(flag)
            if first != other:
                reason = f"{flag} is {other!r}, but {paths[0]} has {first!r}: one server at a time"
                raise InputError(f"{path}: {reason}")


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

"""Fits a latency profile, and a cold start, to the logs of one server under several loads."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from calibrate.dataset import Sample
from calibrate.errors_by_mode import decode_spread, errors_of
from calibrate.fit_mode import fit_mode
from calibrate.server_logs.steps import LoggedTimes, Stretch, read_times
from sim.core.arrays import Float64
from sim.core.batch import ForwardMode
from sim.core.errors import InputError
from sim.core.units import NS_PER_S
from sim.families import open_server_log
from sim.latency.features import StepFeatures, graph_rows
from sim.latency.profile.format import (
    SCHEMA_VERSION,
    DeviceModel,
    Errors,
    FittedTerms,
    HostModel,
    LatencyProfile,
    ModeName,
    Range,
    Source,
    Term,
)
from sim.latency.profile.model import ModeTime
from sim.server_log.records import LoggedServer

# How far off the length of a stretch may be: the log's clock has whole seconds.
_CLOCK_S = 0.5
# The same of the first batches after an idle time, as a share; their times are known exactly, but
# not all of them are equally cold.
_WAVE_SHARE = 0.1
# Flags that change how long a step takes.
_OF_STEPS = (
    "tp_size", "dp_size", "ep_size", "pp_size", "quantization", "kv_cache_dtype",
    "attention_backend", "disable_cuda_graph", "speculative_algorithm",
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
        num_decodes, num_stretches: how many times were fitted.
    """

    profile: LatencyProfile
    cold_start_s: float
    cold_start_tokens: int
    server: LoggedServer
    notes: Sequence[str]
    num_decodes: int
    num_stretches: int


class _Prefill(NamedTuple):
    """A prefill batch takes `batch_s` and `token_s` for each of its tokens."""

    batch_s: float
    token_s: float
    cold_s: float
    errors: Errors


def fit_server_logs(paths: Sequence[Path], *, name: str, label: str, seed: int) -> ServerFit:
    """Fit the times of a server's steps to its logs, under as many loads as there are.

    Raises:
        InputError: a log cannot be read, is of another server, or too few steps can be told apart.
    """
    logs = [(path, open_server_log([path])) for path in paths]
    read: list[tuple[Path, LoggedTimes]] = []
    for path, log in logs:
        times = read_times(log, path)
        if not times.decodes:
            reason = "too few decode lines with a rate of generated tokens, away from prefills"
            raise InputError(f"{path}: {reason}, so nothing to fit")
        read.append((path, times))
    servers = [log.server for _, log in logs]
    _check_one_server(paths, servers)
    ran_in_graphs = any(time.in_graph for _, times in read for time in times.decodes)
    graphs = servers[-1].graph_sizes if ran_in_graphs else ()
    samples = [_sample(*time, graphs) for _, times in read for time in times.decodes]
    stretches = [stretch for _, times in read for stretch in times.stretches]
    batches = [batch for _, times in read for batch in times.batches]
    if len(samples) < _FEWEST_DECODES or len(stretches) < _FEWEST_STRETCHES:
        raise InputError(
            f"{', '.join(map(str, paths))}: {len(samples)} groups of decode steps and"
            f" {len(stretches)} stretches with prefills are too few to fit"
        )
    decode = fit_mode(samples, graphs, num_folds=5, seed=seed)
    prefill = _fit_prefill(stretches, decode.model, graphs)
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
        modes={"decode": decode.model, "extend": _prefill_model(prefill, batches)},
        host=(HostModel(scheduling="overlap", modes=_NO_HOST),
              HostModel(scheduling="normal", modes=_NO_HOST)),
        decode_spread=decode_spread(samples, decode.held_out_ns),
    )  # fmt: skip
    waves = [stretch for stretch in stretches if stretch.after_idle]
    return ServerFit(
        profile=profile,
        cold_start_s=prefill.cold_s,
        cold_start_tokens=min((wave.num_tokens for wave in waves), default=1) // 2 or 1,
        server=servers[-1],
        notes=[f"{path.name}: {note}" for path, log in logs for note in log.notes()],
        num_decodes=len(samples),
        num_stretches=len(stretches),
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


def _fit_prefill(
    stretches: Sequence[Stretch], decode: DeviceModel, graphs: Sequence[int]
) -> _Prefill:
    """What decode steps leave of the wall clock, divided among batches, tokens and cold starts."""
    time = ModeTime(decode)
    columns = np.array(
        [[s.num_batches, s.num_tokens, float(s.after_idle)] for s in stretches], dtype=np.float64
    )
    left_s = np.array([s.wall_s - _decode_s(s, time, graphs) for s in stretches])
    weights = np.array(
        [1 / (_WAVE_SHARE * s.wall_s if s.after_idle else _CLOCK_S) for s in stretches]
    )
    found = _fitted(columns, left_s, weights)
    held_out = np.empty(len(stretches))
    for number in range(len(stretches)):
        others = np.arange(len(stretches)) != number
        held_out[number] = columns[number] @ _fitted(
            columns[others], left_s[others], weights[others]
        )
    errors = errors_of(left_s, held_out, least_ns=_CLOCK_S)
    batch_s, token_s, cold_s = map(float, found)
    return _Prefill(batch_s, token_s, cold_s, errors)


def _fitted(columns: Float64, left_s: Float64, weights: Float64) -> Float64:
    scale = np.maximum(columns.max(axis=0), 1.0)
    found, _ = nnls(columns / scale * weights[:, None], left_s * weights)
    return np.asarray(found / scale, dtype=np.float64)


def _decode_s(stretch: Stretch, time: ModeTime, graphs: Sequence[int]) -> float:
    total_ns = 0.0
    for rows, tokens in stretch.decodes:
        step = StepFeatures(ForwardMode.DECODE, 0, 0, 0, rows, tokens, tokens)
        total_ns += time.at(step, graph_rows(rows, graphs))
    return total_ns / NS_PER_S


def _prefill_model(prefill: _Prefill, batches: Sequence[tuple[int, int, int]]) -> DeviceModel:
    tokens, rows, cached = (
        [float(value) for value in values] for values in zip(*batches, strict=True)
    )
    mean_cached = [total / max(number, 1.0) for total, number in zip(cached, rows, strict=True)]
    return DeviceModel(
        range={
            "tokens": Range(low=min(tokens), high=max(tokens)),
            "mean_cached": Range(low=min(mean_cached), high=max(mean_cached)),
            "prefill_rows": Range(low=min(rows), high=max(rows)),
        },
        terms=(
            Term(term="constant", ns=NS_PER_S * prefill.batch_s),
            Term(term="tokens", ns=NS_PER_S * prefill.token_s),
        ),
        correction=None,
        errors=prefill.errors,
    )

"""Fits the time of SGLang's prefill batches, and a cold start, to stretches of logs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from calibrate.errors_by_mode import errors_of
from calibrate.server_logs.times import ExtendFit, LoggedTimes, Stretch
from sim.core.arrays import Float64
from sim.core.batch import ForwardMode
from sim.core.units import NS_PER_S
from sim.latency.features import StepFeatures, graph_rows
from sim.latency.profile.format import DeviceModel, Errors, Range, Term
from sim.latency.profile.model import ModeTime

# How far off the length of a stretch may be: the log's clock has whole seconds.
_CLOCK_S = 0.5
# The same of the first batches after an idle time, as a share; their times are known exactly, but
# not all of them are equally cold.
_WAVE_SHARE = 0.1


class _Prefill(NamedTuple):
    """A prefill batch takes `batch_s` and `token_s` for each of its tokens."""

    batch_s: float
    token_s: float
    cold_s: float
    errors: Errors


def fit_stretches(
    times: Sequence[LoggedTimes], decode: DeviceModel, graphs: Sequence[int]
) -> ExtendFit:
    """The time of a batch and of its tokens; see `calibrate.server_logs.steps`."""
    stretches = [stretch for log in times for stretch in log.stretches]
    prefill = _fit_prefill(stretches, decode, graphs)
    batches = [batch for log in times for batch in log.batches]
    waves = [stretch.num_tokens for stretch in stretches if stretch.after_idle]
    return ExtendFit(
        model=_prefill_model(prefill, batches),
        cold_start_s=prefill.cold_s,
        cold_start_tokens=min(waves, default=1) // 2 or 1,
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

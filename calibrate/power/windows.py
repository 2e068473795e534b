"""Steps and readings of power on one clock, cut into windows of equal length."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibrate.power.readings import Reading, gpus_of
from calibrate.server_logs.iterations import iteration_of
from calibrate.server_logs.steps import decode_log_interval
from calibrate.server_logs.times import whole
from sim.core.arrays import Float64
from sim.core.batch import ForwardMode
from sim.core.errors import InputError
from sim.core.units import NS_PER_S
from sim.families import open_server_log
from sim.latency.features import StepFeatures, graph_rows, line_features
from sim.latency.profile.format import LatencyProfile
from sim.latency.profile.model import ModeTime, ProfileLatency
from sim.metrics.power import Work, amounts_of
from sim.runlog.run_log_file import read_run_log
from sim.server_log.read import ServerLog
from sim.server_log.records import Kind
from sim.vllm.family import VllmFamily

# nvidia-smi and DCGM give the mean of the second before (`power.draw` of Ampere and later; seen in
# data/measured: readings follow the steps' busy share over that second best).
_READING_LAG_S = 0.5
# Times of a run log are exact. A server's log has whole seconds.
RUN_LOG_WINDOW_S, SERVER_LOG_WINDOW_S = 2.0, 5.0
_STAMP_S, _US_PER_S = 1.0, 1e6
# The clocks of a run log and of its readings are matched to this step.
_MATCH_S = 0.1
_MOST_SHIFTS, _MOST_READINGS = 20_000, 2_000
_MOST_WINDOWS = 1_000_000
# A run log is matched to a part of the readings only if every part that is at least `_NEAR_S`
# seconds away leaves at least `_LEAST_LEAD` times as much unexplained.
_NEAR_S, _LEAST_LEAD = 3.0, 2.0
_FEWEST_READINGS, _LEAST_CORRELATION = 8, 0.9
# When a line of a server's log was written, and its work.
_Line = tuple[float, float, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of one log. Arrays have shape [num_steps]; times are seconds of the log's clock.

    Attributes:
        begin_s, end_s: between which each row of `work` ran; it may have been shorter.
        window_s: how long windows should be, so that the times are exact enough.
    """

    path: Path
    begin_s: Float64
    end_s: Float64
    work: Work
    window_s: float


@dataclass(frozen=True, slots=True)
class Windows:
    """Equal stretches of a log's time; arrays have shape [num_windows].

    Attributes:
        watts: mean of all GPUs together.
        amounts: `sim.metrics.power.AMOUNTS` of the steps, for each second.
        lowest_w, highest_w: sums of each GPU's lowest and highest reading.
    """

    path: Path
    watts: Float64
    amounts: Mapping[str, Float64]
    lowest_w: float
    highest_w: float
    clocks_mhz: tuple[float, ...]
    num_gpus: int
    window_s: float


def steps_of_run_log(path: Path) -> Steps | None:
    """The steps of a run log; None: it has none, only points."""
    lines = read_run_log(path).steps
    if not lines:
        return None
    features = [line_features(line) for line in lines]
    begin_s, end_s = (
        np.array([line[key] for line in lines]) / NS_PER_S for key in ("t_start_ns", "t_end_ns")
    )
    columns = (
        np.array([getattr(step, name) for step in features])
        for name in ("num_decode_rows", "num_prefill_tokens", "num_decode_context_tokens")
    )
    ones = np.ones(len(lines), dtype=np.int64)
    return Steps(path, begin_s, end_s, Work(end_s - begin_s, ones, *columns), RUN_LOG_WINDOW_S)


def steps_of_server_log(files: Sequence[Path], profile: LatencyProfile) -> Steps:
    """The steps of a server's log, with times from the profile that was fitted to it.

    A line was written during the second, or the finer unit, of its stamp, after its steps.
    """
    log = open_server_log(files)
    is_vllm = log.server.engine == VllmFamily.name
    rows = list((_vllm_steps if is_vllm else _sglang_steps)(log, profile))
    at_s, *work = (np.array(column) for column in zip(*rows, strict=True))
    found = Work(*work)
    stamp_s = min(log.resolution_us / _US_PER_S, _STAMP_S)
    window_s = SERVER_LOG_WINDOW_S if stamp_s == _STAMP_S else RUN_LOG_WINDOW_S
    return Steps(log.paths[-1], at_s - found.busy_s, at_s + stamp_s, found, window_s)


def _vllm_steps(log: ServerLog, profile: LatencyProfile) -> Iterator[_Line]:
    latency = ProfileLatency(profile)
    for event in log.events():
        if event.kind is Kind.ITERATION and event.at_us is not None and not event.rank.dp:
            line = iteration_of(event, log)
            if not line.num_new_tokens:
                continue
            busy_s = latency.step_ns(line.features()).device_ns / NS_PER_S
            work = (line.decode_rows, line.prefill_tokens, line.context)
            yield line.at_us / _US_PER_S, busy_s, 1, *work


def _sglang_steps(log: ServerLog, profile: LatencyProfile) -> Iterator[_Line]:
    decode, extend = ModeTime(profile.modes["decode"]), ModeTime(profile.modes["extend"])
    for event in log.events():
        rank = event.rank
        if event.at_us is None or any((rank.dp, rank.pp, rank.tp, rank.ep)):
            continue
        names = ("num_running", "num_used_tokens", "num_new_tokens", "num_new_requests")
        rows, context, tokens, new = (whole(event, name) for name in names)
        at_s = event.at_us / _US_PER_S
        if event.kind is Kind.DECODE and rows:
            step = StepFeatures(ForwardMode.DECODE, 0, 0, 0, rows, context, context)
            steps = decode_log_interval(log)
            busy_ns = steps * decode.at(step, graph_rows(rows, profile.graph_sizes))
            yield at_s, busy_ns / NS_PER_S, steps, rows, 0, context
        elif event.kind is Kind.PREFILL and tokens:
            step = StepFeatures(ForwardMode.EXTEND, tokens, 0, new, 0, 0, tokens)
            yield at_s, extend.at(step, 0) / NS_PER_S, 1, 0, tokens, 0


def windows_of(steps: Steps, readings: Sequence[Reading], offset_s: float) -> Windows:
    """Windows from the log's first step to its last, as far as every GPU was read in them.

    `offset_s` is what is added to the readings' times to get the log's.

    Raises:
        InputError: there are none.
    """
    gpus = gpus_of(readings)
    gaps_s = [np.diff([one.at_s for one in ones]) for ones in gpus.values() if len(ones) > 1]
    window_s = max([steps.window_s, *(2 * float(np.median(each)) for each in gaps_s)])
    begin_s, end_s = float(steps.begin_s.min()), float(steps.end_s.max())
    if end_s - begin_s > _MOST_WINDOWS * window_s:
        raise InputError(f"{steps.path}: lasts more than {_MOST_WINDOWS * window_s:,.0f} s")
    edges_s = np.arange(begin_s, end_s + 1e-9, window_s)
    if len(edges_s) < 2:
        lasts = f"lasts {end_s - begin_s:.1f} s, a window of power {window_s:g} s"
        raise InputError(f"{steps.path}: {lasts}")
    watts = np.sum([_mean_w(ones, offset_s, edges_s) for ones in gpus.values()], axis=0)
    kept = np.isfinite(watts)
    if not kept.any():
        read_s = [one.at_s + offset_s for one in readings]
        begin, end, first, last = map(_stamp, (begin_s, end_s, min(read_s), max(read_s)))
        raise InputError(
            f"{steps.path}: its steps are from {begin} to {end}, the readings of power from {first}"
            f" to {last}: --power-offset adds seconds to the readings' times"
        )
    amounts = {
        name: _spread(steps, values, edges_s)[kept] / window_s
        for name, values in amounts_of(steps.work).items()
    }
    # Times of a server's log are not exact: no window is busier than always.
    busy = np.maximum(amounts["busy_s"], 1.0)
    during = [
        one.clock_mhz
        for one in readings
        if one.clock_mhz is not None and begin_s <= one.at_s + offset_s <= end_s
    ]
    return Windows(
        steps.path,
        watts[kept],
        {name: values / busy for name, values in amounts.items()},
        sum(min(one.watts for one in ones) for ones in gpus.values()),
        sum(max(one.watts for one in ones) for ones in gpus.values()),
        (min(during), max(during)) if during else (),
        len(gpus),
        window_s,
    )


def _mean_w(readings: Sequence[Reading], offset_s: float, edges_s: Float64) -> Float64:
    """Mean watts of a GPU between edges on the log's clock; NaN where there is no reading."""
    at_s = np.array([one.at_s for one in readings]) - _READING_LAG_S + offset_s
    num, _ = np.histogram(at_s, edges_s)
    total, _ = np.histogram(at_s, edges_s, weights=[one.watts for one in readings])
    with np.errstate(invalid="ignore"):
        return np.asarray(total / num, dtype=np.float64)


def _stamp(at_s: float) -> str:
    return str(np.datetime64(round(at_s), "s")).replace("T", " ")


def _spread(steps: Steps, amounts: Float64, edges_s: Float64) -> Float64:
    """How much of the steps' amounts is in each window, if each is spread evenly over its step."""
    at_s = np.concatenate((steps.begin_s, steps.end_s))
    per_s = amounts / np.maximum(steps.end_s - steps.begin_s, 1e-9)
    order = np.argsort(at_s, kind="stable")
    rate = np.cumsum(np.concatenate((per_s, -per_s))[order])
    at_s = at_s[order]
    until = np.concatenate(([0.0], np.cumsum(rate[:-1] * np.diff(at_s))))
    return np.diff(np.interp(edges_s, at_s, until))


def offset_of_run_log(steps: Steps, readings: Sequence[Reading]) -> tuple[float, float]:
    """The offset with which readings follow the steps best, and their correlation.

    A run log's clock begins with the run, and nothing in the log says when that was.

    Raises:
        InputError: no offset makes the readings follow the steps, or several do.
    """
    gpus = gpus_of(readings)
    first = next(iter(gpus.values()))
    every = -(-len(first) // _MOST_READINGS)
    at_s = np.array([one.at_s for one in first[::every]]) - _READING_LAG_S
    watts = np.array([one.watts for one in first[::every]])
    begin_s, end_s = float(steps.begin_s.min()), float(steps.end_s.max())
    # Roughly what steps draw: more in large batches, most in prefill steps.
    work = steps.work
    doublings = np.log2(np.maximum(work.decode_rows, 1))
    draw = np.where(work.prefill_tokens > 0, 2.0, 1 + doublings / 8)
    ends_s = np.linspace(begin_s - 2, end_s + 2, min(int((end_s - begin_s) / _MATCH_S) + 3, 10**6))
    drawn = np.concatenate(([0.0], np.cumsum(_spread(steps, draw * work.busy_s, ends_s))))
    # The whole run lies within the readings, but for a second at either end.
    low, high = begin_s - float(at_s[0]) + 1, end_s - float(at_s[-1]) - 1
    shifts = np.linspace(high, low, min(int(max(low - high, 0) / _MATCH_S) + 1, _MOST_SHIFTS))
    found = np.array([_correlation(at_s + shift, watts, ends_s, drawn) for shift in shifts])
    best = int(found.argmax()) if len(found) else 0
    if not len(found) or found[best] < _LEAST_CORRELATION:
        reason = "no part of the readings of power follows its steps"
        raise InputError(f"{steps.path}: {reason}: --power-offset says which")
    others = found[np.abs(shifts - shifts[best]) > _NEAR_S]
    if 1 - others.max(initial=0) ** 2 < _LEAST_LEAD * (1 - found[best] ** 2):
        reason = "several parts of the readings of power follow its steps as well"
        raise InputError(f"{steps.path}: {reason}: --power-offset says which")
    return float(shifts[best]), float(found[best])


def _correlation(at_s: Float64, watts: Float64, ends_s: Float64, drawn: Float64) -> float:
    """Of the readings during the run, and just before and after it."""
    during = slice(*np.searchsorted(at_s, (ends_s[0], ends_s[-1])))
    at_s, watts, half_s = at_s[during], watts[during], _READING_LAG_S
    expected = np.interp(at_s + half_s, ends_s, drawn) - np.interp(at_s - half_s, ends_s, drawn)
    if len(at_s) < _FEWEST_READINGS or not np.ptp(expected) or not np.ptp(watts):
        return 0.0
    return float(np.corrcoef(expected, watts)[0, 1])

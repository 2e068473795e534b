"""Fits the power of a server to windows of its steps and of readings of its GPUs.

    watts = idle_w x (share without a step)
          + (decode_w + doubling_w x log2 rows) x (share in decode steps)
          + prefill_w x (share in prefill steps)

The form was chosen among several by what it says of loads that it was not fitted to
(docs/how-to/power.md).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from calibrate.errors_by_mode import errors_of
from calibrate.fit_terms import rounded
from calibrate.power.windows import Steps, Windows
from sim.core.arrays import Bools, Float64
from sim.core.errors import InputError
from sim.latency.profile.format import Power, Range

# Windows without a step that say what an idle server draws.
_FEWEST_IDLE = 3
# A window is without a step if less than this share of it is.
_IDLE_SHARE = 0.01
_FEWEST_WINDOWS = 8
# Neighbouring windows are alike, so parts of this many are held out together.
_BLOCK, _NUM_FOLDS = 6, 5
_NUM_ROUNDS, _HUBER_SIGMAS = 6, 1.5


class LoadError(NamedTuple):
    """Mean watts of a log: measured, fitted, and from a fit to the other logs (None: no others)."""

    log: str
    num_windows: int
    watts: float
    fitted_w: float
    left_out_w: float | None


class PowerFit(NamedTuple):
    """What was fitted, and how well it says what each log drew."""

    power: Power
    loads: Sequence[LoadError]


class _Data(NamedTuple):
    """All windows; `columns` [num_windows, 3]: shares as in the formula; `log`: whose they are."""

    watts: Float64
    columns: Float64
    log: Float64


def fit_power(logs: Sequence[Windows], steps: Sequence[Steps], sources: Sequence[str]) -> PowerFit:
    """Fit the power of a server to the windows of its logs.

    Raises:
        InputError: there are too few windows, or the logs are of different numbers of GPUs.
    """
    gpus = {each.num_gpus for each in logs}
    if len(gpus) > 1:
        raise InputError(f"{logs[-1].path}: readings of {logs[-1].num_gpus} GPUs: others have more")
    data = _Data(
        np.concatenate([each.watts for each in logs]),
        np.column_stack([
            np.concatenate([getattr(each, name) for each in logs])
            for name in ("decode", "doublings", "prefill")
        ]),
        np.concatenate([np.full(len(each.watts), number) for number, each in enumerate(logs)]),
    )  # fmt: skip
    busy = _busy(data) > _IDLE_SHARE
    if busy.sum() < _FEWEST_WINDOWS:
        names = ", ".join(str(each.path) for each in logs)
        raise InputError(f"{names}: {int(busy.sum())} windows with steps and power are too few")
    idle = data.watts[~busy]
    is_idle_known = len(idle) >= _FEWEST_IDLE
    idle_w = float(np.median(idle)) if is_idle_known else min(each.lowest_w for each in logs)
    found = _fitted(data, idle_w)
    blocks = (np.arange(len(busy)) // _BLOCK) % _NUM_FOLDS
    held_out = np.empty(len(busy))
    for fold in range(_NUM_FOLDS):
        part = blocks == fold
        held_out[part] = _predicted(_of(data, part), idle_w, _fitted(_of(data, ~part), idle_w))
    rows = np.concatenate([each.rows[each.rows > 0] for each in steps])
    # A reading is a mean over a second, so single steps may draw more than any.
    largest_w = max(found[2], found[0] + found[1] * np.log2(max(rows.max(initial=1), 1)))
    clocks = [clock for each in logs for clock in each.clocks_mhz]
    power = Power(
        gpus=gpus.pop(),
        idle_w=rounded(idle_w),
        decode_w=rounded(found[0]),
        doubling_w=rounded(found[1]),
        prefill_w=rounded(found[2]),
        limit_w=rounded(max(largest_w, *(each.highest_w for each in logs))),
        idle_measured=is_idle_known,
        sources=tuple(sources),
        windows=len(busy),
        window_s=rounded(max(each.window_s for each in logs)),
        decode_rows=_range(rows.tolist()),
        clock_mhz=_range(clocks) if clocks else None,
        errors=errors_of(data.watts, held_out),
    )
    loads = [_load_error(data, number, each, idle_w, found) for number, each in enumerate(logs)]
    return PowerFit(power, loads)


def predicted_w(windows: Windows, power: Power) -> Float64:
    """What the power of a server says of the windows of any log of it."""
    columns = np.column_stack([windows.decode, windows.doublings, windows.prefill])
    data = _Data(windows.watts, columns, np.zeros(len(windows.watts)))
    found = np.array([power.decode_w, power.doubling_w, power.prefill_w])
    return _predicted(data, power.idle_w, found)


def _range(values: Sequence[float]) -> Range:
    return Range(low=min(values, default=0), high=max(values, default=0))


def _busy(data: _Data) -> Float64:
    return np.asarray(data.columns[:, 0] + data.columns[:, 2])


def _of(data: _Data, part: Bools) -> _Data:
    return _Data(data.watts[part], data.columns[part], data.log[part])


def _predicted(data: _Data, idle_w: float, found: Float64) -> Float64:
    return np.asarray(data.columns @ found + idle_w * (1 - _busy(data)), dtype=np.float64)


def _load_error(
    data: _Data, number: int, windows: Windows, idle_w: float, found: Float64
) -> LoadError:
    mine = data.log == number
    left_out_w = None
    if not mine.all():
        others = _fitted(_of(data, ~mine), idle_w)
        left_out_w = float(_predicted(_of(data, mine), idle_w, others).mean())
    return LoadError(
        windows.path.name,
        int(mine.sum()),
        float(data.watts[mine].mean()),
        float(_predicted(_of(data, mine), idle_w, found).mean()),
        left_out_w,
    )


def _fitted(data: _Data, idle_w: float) -> Float64:
    """Watts of the three columns, at least 0; each log counts equally, and outliers little.

    Where steps and readings are a second apart, as when a load begins, windows are far off.
    """
    target = data.watts - idle_w * (1 - _busy(data))
    _, number, sizes = np.unique(data.log, return_inverse=True, return_counts=True)
    of_log = 1 / np.sqrt(sizes[number])
    scale = np.maximum(data.columns.max(axis=0), 1e-9)
    weights = of_log
    for _ in range(_NUM_ROUNDS):
        found, _ = nnls(data.columns / scale * weights[:, None], target * weights)
        off = np.abs(data.columns / scale @ found - target)
        limit = max(_HUBER_SIGMAS * 1.4826 * float(np.median(off)), 1e-6)
        weights = of_log * np.sqrt(np.minimum(1.0, limit / np.maximum(off, 1e-9)))
    return np.asarray(found / scale, dtype=np.float64)

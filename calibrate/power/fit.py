"""Fits the power of a server to windows of its steps and of readings of its GPUs.

    watts = idle_w x (share without a step) + sum of joules x amounts a second

What the amounts are is chosen by how well logs or windows are predicted that the fit did not see:
no form is the best for all servers (docs/how-to/power.md).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from calibrate.errors_by_mode import errors_of
from calibrate.fit_terms import rounded
from calibrate.power.windows import Steps, Windows
from sim.core.arrays import Bools, Float64
from sim.core.errors import InputError
from sim.latency.profile.format import Power, Range

# Watts by the kind of step and its rows; energy by work; and energy by work whose rows share much,
# as they do the experts of a mixture.
_FORMS: Sequence[Sequence[str]] = (
    ("decode_s", "decode_doublings_s", "prefill_s"),
    ("busy_s", "steps", "prefill_tokens", "decode_rows", "context_tokens"),
    ("busy_s", "step_doublings", "prefill_tokens", "context_tokens"),
)
# A later form must be so much better than those before it.
_BETTER = 0.95
# Windows without a step that say what an idle server draws.
_FEWEST_IDLE = 3
# A window is without a step if less than this share of it is.
_IDLE_SHARE = 0.01
_FEWEST_WINDOWS, _FEWEST_LOGS = 8, 3
# A reading is a mean over a second, so a step may draw more than the highest.
_ABOVE_READINGS = 1.1
# Neighbouring windows are alike, so parts of this many are held out together.
_BLOCK, _NUM_FOLDS = 6, 5
_NUM_ROUNDS, _HUBER_SIGMAS, _SIGMAS_PER_MAD = 6, 1.5, 1.4826


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
    """All windows; `log` says whose each is."""

    watts: Float64
    amounts: Mapping[str, Float64]
    log: Float64

    def part(self, of: Bools) -> "_Data":
        amounts = {name: values[of] for name, values in self.amounts.items()}
        return _Data(self.watts[of], amounts, self.log[of])

    def columns(self, form: Sequence[str]) -> Float64:
        return np.column_stack([self.amounts[name] for name in form])


def fit_power(logs: Sequence[Windows], steps: Sequence[Steps], sources: Sequence[str]) -> PowerFit:
    """Fit the power of a server to the windows of its logs.

    Raises:
        InputError: there are too few windows, or the logs are of different numbers of GPUs.
    """
    num_gpus = {each.num_gpus for each in logs}
    if len(num_gpus) > 1:
        raise InputError(f"{logs[-1].path}: readings of {logs[-1].num_gpus} GPUs, others of more")
    data = _Data(
        np.concatenate([each.watts for each in logs]),
        {name: np.concatenate([each.amounts[name] for each in logs]) for name in logs[0].amounts},
        np.concatenate([np.full(len(each.watts), number) for number, each in enumerate(logs)]),
    )
    is_busy = data.amounts["busy_s"] > _IDLE_SHARE
    if is_busy.sum() < _FEWEST_WINDOWS:
        names = ", ".join(str(each.path) for each in logs)
        raise InputError(f"{names}: {int(is_busy.sum())} windows with steps and power are too few")
    idle = data.watts[~is_busy]
    is_idle_known = len(idle) >= _FEWEST_IDLE
    idle_w = float(np.median(idle)) if is_idle_known else min(each.lowest_w for each in logs)
    form = _best_form(data, idle_w)
    found = _fitted(data, form, idle_w)
    rows = np.concatenate([each.work.decode_rows for each in steps])
    clocks = [clock for each in logs for clock in each.clocks_mhz]
    power = Power(
        gpus=num_gpus.pop(),
        idle_w=rounded(idle_w),
        limit_w=rounded(_ABOVE_READINGS * max(each.highest_w for each in logs)),
        joules={name: rounded(joules) for name, joules in zip(form, found, strict=True) if joules},
        idle_measured=is_idle_known,
        sources=tuple(sources),
        windows=len(is_busy),
        window_s=rounded(max(each.window_s for each in logs)),
        decode_rows=_range(rows[rows > 0].tolist()),
        clock_mhz=_range(clocks) if clocks else None,
        errors=errors_of(data.watts, _held_out(data, form, idle_w)),
    )
    loads = [_load_error(data, number, each, power, form) for number, each in enumerate(logs)]
    return PowerFit(power, loads)


def predicted_w(windows: Windows, power: Power) -> Float64:
    """What the power of a server says of the windows of any log of it."""
    busy_w = sum(joules * windows.amounts[name] for name, joules in power.joules.items())
    return np.asarray(busy_w + power.idle_w * (1 - windows.amounts["busy_s"]), dtype=np.float64)


def _best_form(data: _Data, idle_w: float) -> Sequence[str]:
    """The form that says most of what it was not fitted to; the first of those that do equally."""
    best, least = _FORMS[0], _off(data, _FORMS[0], idle_w)
    for form in _FORMS[1:]:
        off = _off(data, form, idle_w)
        if off < _BETTER * least:
            best, least = form, off
    return best


def _off(data: _Data, form: Sequence[str], idle_w: float) -> float:
    """How far off a form is, as a share: in each log from the others, or in held-out windows.

    Of two logs one says little of the other.
    """
    logs = np.unique(data.log)
    if len(logs) < _FEWEST_LOGS:
        return float(np.mean(np.abs(_held_out(data, form, idle_w) / data.watts - 1)))
    off = []
    for number in logs:
        mine = data.log == number
        watts = _left_out_w(data, mine, form, idle_w)
        off.append(watts / data.watts[mine].mean() - 1)
    return float(np.sqrt(np.mean(np.square(off))))


def _left_out_w(data: _Data, mine: Bools, form: Sequence[str], idle_w: float) -> float:
    """Mean watts of one log's windows, from a fit to the others."""
    others = _fitted(data.part(~mine), form, idle_w)
    return float(_predicted(data.part(mine), form, others, idle_w).mean())


def _held_out(data: _Data, form: Sequence[str], idle_w: float) -> Float64:
    blocks = (np.arange(len(data.watts)) // _BLOCK) % _NUM_FOLDS
    predicted = np.empty(len(data.watts))
    for fold in range(_NUM_FOLDS):
        part = blocks == fold
        found = _fitted(data.part(~part), form, idle_w)
        predicted[part] = _predicted(data.part(part), form, found, idle_w)
    return predicted


def _predicted(data: _Data, form: Sequence[str], found: Float64, idle_w: float) -> Float64:
    idle = idle_w * (1 - data.amounts["busy_s"])
    return np.asarray(data.columns(form) @ found + idle, dtype=np.float64)


def _range(values: Sequence[float]) -> Range:
    return Range(low=min(values, default=0), high=max(values, default=0))


def _load_error(
    data: _Data, number: int, windows: Windows, power: Power, form: Sequence[str]
) -> LoadError:
    mine = data.log == number
    left_out_w = None if mine.all() else _left_out_w(data, mine, form, power.idle_w)
    return LoadError(
        windows.path.name,
        int(mine.sum()),
        float(windows.watts.mean()),
        float(predicted_w(windows, power).mean()),
        left_out_w,
    )


def _fitted(data: _Data, form: Sequence[str], idle_w: float) -> Float64:
    """Joules of the form's amounts, at least 0; each log counts equally, and outliers little.

    Where steps and readings are a second apart, as when a load begins, windows are far off.
    """
    columns = data.columns(form)
    target = data.watts - idle_w * (1 - data.amounts["busy_s"])
    _, number, sizes = np.unique(data.log, return_inverse=True, return_counts=True)
    of_log = 1 / np.sqrt(sizes[number])
    scale = np.maximum(columns.max(axis=0), 1e-12)
    weights = of_log
    for _ in range(_NUM_ROUNDS):
        found, _ = nnls(columns / scale * weights[:, None], target * weights)
        off = np.abs(columns / scale @ found - target)
        limit = max(_HUBER_SIGMAS * _SIGMAS_PER_MAD * float(np.median(off)), 1e-6)
        weights = of_log * np.sqrt(np.minimum(1.0, limit / np.maximum(off, 1e-9)))
    return np.asarray(found / scale, dtype=np.float64)

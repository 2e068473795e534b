"""Fits the host presets to development rows: `python -m silicon.fit [PRESET ...]`.

The means of a row are nearly linear in each of a host's costs. So each round simulates a sample of
rows at the current costs, and with each cost a little higher; then it takes the costs with the
smallest absolute error of log TTFT and log TPOT, in a region around the current ones.
"""

import json
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from silicon.facts import Row, load_rows
from silicon.scenario import host_preset_of
from silicon.simulate import simulate_row
from sim.core.arrays import Float64

_PRESETS_FILE = Path(__file__).parent.parent / "sim" / "latency" / "host_presets.json"
# Each cost that is fitted: how much higher it is simulated. A round changes it by three times that.
_STEPS_S: Mapping[str, float] = {
    "front_end_s": 5e-3,
    "request_s": 5e-4,
    "prompt_token_s": 2e-6,
    "step_s": 3e-4,
    "row_gap_s": 5e-6,
    "layer_gap_s": 5e-6,
    "layer_launch_s": 1e-4,
    "subquadratic_layer_gap_s": 5e-6,
    "subquadratic_layer_launch_s": 1e-4,
    "cold_start_s": 2.0,
}
# Development rows of SGLang 0.5.3 whose largest step has 13,708 tokens are not slow, those with
# 15,009 are.
_COLD_START_TOKENS = 14_000
_REGION = 3.0
_ROUNDS = 4
_MAX_ROWS = 96
# Above this many output tokens under way a row takes long to simulate.
_MAX_LOAD = 64 * 1024
# TPOT is measured more exactly than TTFT.
_WEIGHT_TPOT = 1.5
# Less than this changes nothing.
_LEAST_S = 1e-8


def fit(preset: str) -> dict[str, float]:
    """The costs of a preset, in seconds."""
    rows = _sample(preset)
    keys = list(_STEPS_S)
    scale = np.array([_STEPS_S[key] for key in keys])
    measured = np.log([[row.ttft_ms, row.tpot_ms] for row in rows])
    now = json.loads(_PRESETS_FILE.read_text()).get(preset, {})
    costs = np.array([now.get(key, 0.0) for key in keys])
    best: tuple[float, Float64] = (np.inf, costs)
    for _ in range(_ROUNDS):
        here = _means(rows, keys, costs)
        error = _error(np.log(here) - measured)
        sys.stderr.write(f"{preset}: {error:.4f} at {dict(zip(keys, costs, strict=True))}\n")
        if error < best[0]:
            best = error, costs
        slopes = np.array(
            [
                _means(rows, keys, costs + scale * (np.arange(len(keys)) == place)) - here
                for place in range(len(keys))
            ]
        )
        changed = costs + scale * _best_change(here, slopes, measured, costs / scale)
        # A cost that changes nothing cannot be told.
        can_be_told = np.abs(slopes).sum(axis=(1, 2)) > 0
        costs = np.where(can_be_told, np.maximum(changed, 0.0), 0.0)
    here = _means(rows, keys, costs)
    if (error := _error(np.log(here) - measured)) < best[0]:
        best = error, costs
    sys.stderr.write(f"{preset}: {best[0]:.4f} of {len(rows)} rows\n")
    costs_s = dict(zip(keys, best[1].tolist(), strict=True))
    fitted: dict[str, float] = {
        key: float(f"{cost_s:.3g}") for key, cost_s in costs_s.items() if cost_s > _LEAST_S
    }
    if "cold_start_s" in fitted:
        fitted["cold_start_tokens"] = _COLD_START_TOKENS
    return fitted


def _sample(preset: str) -> list[Row]:
    rows = [
        row
        for row in load_rows().values()
        if row.is_judged
        and row["split"] == "development"
        and host_preset_of(row) == preset
        and (row.number("concurrency") or 0) * (row.number("osl") or 0) <= _MAX_LOAD
    ]
    random.Random(preset).shuffle(rows)
    return [row for row in rows[: 2 * _MAX_ROWS] if simulate_row(row).status == "ok"][:_MAX_ROWS]


def _means(rows: Sequence[Row], keys: Sequence[str], costs: Float64) -> Float64:
    """Simulated mean TTFT and TPOT of each row, ms; shape [rows, 2]."""
    host = json.dumps(
        {"cold_start_tokens": _COLD_START_TOKENS, **dict(zip(keys, costs.tolist(), strict=True))}
    )
    outcomes = [simulate_row(row, overrides=(f"host={host}",)) for row in rows]
    return np.array([[outcome.ttft_ms, outcome.tpot_ms] for outcome in outcomes], dtype=np.float64)


def _error(differences: Float64) -> float:
    ttft, tpot = np.abs(differences).mean(axis=0)
    return float(ttft + _WEIGHT_TPOT * tpot)


def _best_change(here: Float64, slopes: Float64, measured: Float64, costs: Float64) -> Float64:
    """Steps by which to change the costs; none below zero, and none out of the region."""

    def error(change: Float64) -> float:
        means = here + np.tensordot(change, slopes, 1)
        return _error(np.log(np.maximum(means, 1e-3)) - measured)

    bounds = [(max(-_REGION, -cost), _REGION) for cost in costs]
    found = minimize(error, np.zeros(len(costs)), method="Powell", bounds=bounds)
    change: Float64 = np.asarray(found.x, dtype=np.float64)
    return change


def main(names: Sequence[str]) -> None:
    presets = json.loads(_PRESETS_FILE.read_text())
    for name in names or list(presets):
        presets[name] = fit(name)
        _PRESETS_FILE.write_text(json.dumps(presets, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])

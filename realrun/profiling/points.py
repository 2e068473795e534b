"""The measurements of a grid, as lines of a run log and as a summary for the terminal."""

from collections.abc import Iterator, Sequence

import numpy as np

from realrun.profiling.composition import Composition
from realrun.profiling.grid_run import GridMeasurements, Measurement
from sim.core.batch import ForwardMode
from sim.core.packed import Line

_WHY_ENDED = {
    "complete": "the grid is complete",
    "budget": "the budget is spent",
    "interrupted": "interrupted",
    "failed": "the device failed",
}
_MAX_REFUSALS_KEPT = 5


def point_lines(measured: GridMeasurements) -> Iterator[Line]:
    """The line of each composition, in order of first measurement; times are medians."""
    for composition, measurements in measured.points.items():
        yield _point_line(composition, measurements)


def _point_line(composition: Composition, measurements: Sequence[Measurement]) -> Line:
    times_ns = np.array([measurement[:-1] for measurement in measurements])
    low_ns, high_ns = np.percentile(times_ns[:, 0], [25, 75])
    medians_ns = np.rint(np.median(times_ns, axis=0)).astype(int).tolist()
    return {
        "kind": "point",
        "mode": composition.mode.name.lower(),
        "prefill": [["", prefix, extend] for prefix, extend in composition.prefill],
        "n_decode": len(composition.decode_contexts),
        "ctx": composition.num_context_tokens,
        "max_decode_ctx": max(composition.decode_contexts, default=0),
        **dict(zip(Measurement._fields, medians_ns, strict=False)),
        "forward_iqr_ns": round(float(high_ns - low_ns)),
        "repeats": len(measurements),
        "padded_rows": measurements[0].padded_rows,
    }


def grid_counts(measured: GridMeasurements, num_points: int, num_earlier: int) -> dict[str, object]:
    """How much of the grid was measured, by this call and before, for the first line of the log."""
    return {
        "points": num_points,
        "measured": len(measured.points) + num_earlier,
        "steps": measured.num_steps,
        "too_long": len(measured.too_long),
        "refused": len(measured.refused),
        "refusals": [
            {
                "prefill": composition.prefill,
                "n_decode": len(composition.decode_contexts),
                "ctx": composition.num_context_tokens,
                "why": why,
            }
            for composition, why in measured.refused[:_MAX_REFUSALS_KEPT]
        ],
        "stopped": measured.stopped,
    }


def summary_lines(
    measured: GridMeasurements, num_points: int, lines: Sequence[Line]
) -> Iterator[str]:
    """A line about the whole grid, one for each mode, and one if compositions were left out.

    Args:
        measured: what this call measured.
        num_points: points of the grid.
        lines: the lines of the log, of this call and earlier ones.
    """
    yield (
        f"{len(lines):,} of {num_points:,} points, {measured.num_steps:,} steps in this call;"
        f" {_WHY_ENDED[measured.stopped]}"
    )
    for mode in (mode.name.lower() for mode in ForwardMode):
        of_mode = [line for line in lines if line["mode"] == mode]
        if of_mode:
            yield f"{mode}: {len(of_mode):,} points, {_times_in_words(of_mode)}"
    if measured.too_long:
        yield f"too long for this budget: {len(measured.too_long):,} points"
    if measured.refused:
        yield f"refused by the runner: {len(measured.refused)}, first: {measured.refused[0][1]}"


def _times_in_words(lines: Sequence[Line]) -> str:
    times_ms = [line["forward_ns"] / 1e6 for line in lines]
    text = f"{min(times_ms):.3g} to {max(times_ms):.3g} ms"
    spreads = [line["forward_iqr_ns"] / line["forward_ns"] for line in lines if line["repeats"] > 1]
    if spreads:
        text += f", typical spread of repeats {np.median(spreads):.1%}"
    return text

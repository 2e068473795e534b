"""Measures how long a model's steps of many compositions take, and writes a run log."""

import gc
from dataclasses import asdict
from pathlib import Path

from realrun.clock import Budget
from realrun.model.fingerprint import git_revision
from realrun.model.kv_tensors import num_pages_that_fit
from realrun.model.paged_model import PagedModel
from realrun.profiling.composition import Composition, GridLimits
from realrun.profiling.earlier import earlier_points, key_of
from realrun.profiling.grid import MAX_NEW_TOKENS, grid
from realrun.profiling.grid_options import GridOptions
from realrun.profiling.grid_run import GridMeasurements, measure_grid
from realrun.profiling.measure import StepMeter
from realrun.profiling.points import grid_counts, point_lines, summary_lines
from realrun.runner.warm_runner import RunnerOptions, WarmRunner, load_with_options, warm_runner
from sim import __version__
from sim.commands.output import print_line
from sim.core.errors import InputError
from sim.core.files import check_target
from sim.families import DEFAULT_FAMILY, FAMILIES
from sim.report.progress import Progress
from sim.runlog.run_log_file import write_run_log

_MAX_ROWS = 512
# Smaller on a CPU, which takes seconds for steps that a GPU does in milliseconds.
_CPU_MAX_ROWS = 16
_CPU_MAX_CONTEXT = 1_024


def profile_model(
    model_name: str, out: Path, *, options: RunnerOptions, points: GridOptions, budget: Budget
) -> bool:
    """Measure as much of the grid as the budget allows, write the log, and print a summary.

    Each step is measured alone, see `StepMeter`. If `out` is the log of an earlier call with the
    same device, model and options, its points are kept, and this call measures the others.

    Returns:
        Whether no point is left for another call.

    Raises:
        InputError: the model, the device, an option or the log's path is wrong, or nothing could
            be measured.
        KeyboardInterrupt: Ctrl-C was pressed; the points measured before it have been written.
    """
    check_target(out)
    model = load_with_options(model_name, options)
    limits = _limits(model, points)
    with warm_runner(
        model,
        options,
        num_pages=limits.num_pages,
        page_size=limits.page_size,
        max_rows=limits.max_rows,
        max_tokens=min(limits.max_new_tokens, limits.max_context),
    ) as warm:
        meta = {
            "source": "profile",
            "model": model_name,
            "page_size": limits.page_size,
            "seed": points.seed,
            "options": asdict(options),
            "limits": asdict(limits),
            "repeats": points.repeats,
            "servetwin_version": __version__,
            "git_revision": git_revision(),
            "fingerprint": warm.fingerprint,
            "graph_sizes": warm.graph_sizes,
        }
        earlier = earlier_points(out, meta)
        rounds = grid(limits)
        num_points = sum(map(len, rounds))
        left = [[item for item in items if key_of(item) not in earlier] for items in rounds]
        measured = _measure(warm, left, limits.max_rows, points, budget)
        lines = [*earlier.values(), *point_lines(measured)]
        if measured.points:
            meta["grid"] = grid_counts(measured, num_points, len(earlier))
            write_run_log(out, meta, lines)
    for line in summary_lines(measured, num_points, lines):
        print_line(line)
    if measured.stopped == "interrupted":
        raise KeyboardInterrupt
    if not lines:
        raise InputError(f"{out}: not written: nothing could be measured")
    print_line(f"log: {out}")
    if measured.stopped == "failed":
        raise InputError(f"{model.device}: {measured.failure}")
    return measured.stopped == "complete"


def _limits(model: PagedModel, points: GridOptions) -> GridLimits:
    on_cpu = model.device.type == "cpu"
    longest = min(model.max_positions, _CPU_MAX_CONTEXT) if on_cpu else model.max_positions
    max_context = points.max_context or longest
    max_rows = points.max_rows or (_CPU_MAX_ROWS if on_cpu else _MAX_ROWS)
    if max_context > model.max_positions:
        raise InputError(
            f"--max-context {max_context}: {model.shape.name} has only {model.max_positions}"
            " positions"
        )
    _, memory_share = FAMILIES[DEFAULT_FAMILY].section()().memory_share
    num_pages = num_pages_that_fit(model, points.page_size, memory_share)
    return GridLimits(
        page_size=points.page_size,
        num_pages=min(num_pages, max_rows * -(-max_context // points.page_size)),
        max_rows=max_rows,
        max_context=max_context,
        max_new_tokens=MAX_NEW_TOKENS,
    )


def _measure(
    warm: WarmRunner,
    rounds: list[list[Composition]],
    max_rows: int,
    points: GridOptions,
    budget: Budget,
) -> GridMeasurements:
    meter = StepMeter(warm, max_rows=max_rows, seed=points.seed)
    shape = warm.runner.model.shape

    def text(_now_ns: int) -> str:
        if budget.total_s == float("inf"):
            return "steps"
        return f"steps, {max(budget.left_s(), 0):,.0f} s of the budget left"

    # As in a real run: garbage collections during the measurement skip the objects made before it.
    gc.collect()
    gc.freeze()
    num_steps = points.repeats * sum(map(len, rounds))
    try:
        with Progress(num_steps, text=text) as progress:
            return measure_grid(
                rounds,
                meter,
                flops=lambda composition: composition.flops(shape),
                budget=budget,
                repeats=points.repeats,
                seed=points.seed,
                watcher=lambda num_steps: progress.update(num_steps, 0),
            )
    finally:
        gc.unfreeze()

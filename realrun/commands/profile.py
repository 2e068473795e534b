"""`realrun profile`: measures how long steps of many compositions take, and writes a run log."""

import time
from pathlib import Path
from typing import Annotated

from realrun.commands.options import (
    AttentionChoice,
    AttentionOption,
    BudgetS,
    Device,
    DType,
    Graphs,
    Model,
)
from realrun.profiling.grid_options import GridOptions
from realrun.suite import UNFINISHED
from sim.command_line import command, out_option


@command()
def profile(
    *,
    model: Model,
    out: Annotated[Path, out_option("file of the run log (.jsonl or .jsonl.gz)", "FILE")],
    budget_s: BudgetS = None,
    device: Device = "auto",
    dtype: DType = "auto",
    attention: AttentionOption = AttentionChoice.AUTO,
    graphs: Graphs = True,
    points: GridOptions,
) -> int:
    """Measure steps of many compositions; exit code 3 if points remain: repeat the command."""
    # The budget includes the time that loading torch takes.
    began_s = time.monotonic()
    from realrun.clock import Budget
    from realrun.profiling.profile_model import profile_model
    from realrun.runner.warm_runner import RunnerOptions

    is_complete = profile_model(
        model,
        out,
        options=RunnerOptions(
            device=device, dtype=dtype, attention=attention.value, graphs=graphs, seed=points.seed
        ),
        points=points,
        budget=Budget(budget_s, began_s=began_s),
    )
    return 0 if is_complete else UNFINISHED

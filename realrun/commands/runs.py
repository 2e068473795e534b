"""`realrun runs`: serves variants of a scenario several times each, on one warm runner."""

import time
from pathlib import Path
from typing import Annotated

import typer

from realrun.commands.options import (
    AttentionChoice,
    AttentionOption,
    BudgetS,
    Device,
    DType,
    Graphs,
)
from realrun.suite import UNFINISHED
from sim.command_line import Scenario, Set, command, out_option


@command(user_code=True)
def runs(
    *,
    file: Scenario,
    out: Annotated[Path, out_option("file of the run logs (.tar)", "FILE")],
    variant: Annotated[
        list[str],
        typer.Option(
            metavar="'NAME KEY.PATH=VALUE...'",
            help="a variant to serve: its name and its changed keys; may be repeated",
        ),
    ],
    set_: Set = None,
    repeats: Annotated[int, typer.Option(min=1, help="runs of each variant")] = 2,
    budget_s: BudgetS = None,
    max_mib: Annotated[
        float | None, typer.Option(min=0, help="largest size of the file, in MiB")
    ] = None,
    device: Device = "auto",
    dtype: DType = "auto",
    attention: AttentionOption = AttentionChoice.AUTO,
    graphs: Graphs = True,
) -> int:
    """Serve variants of a scenario; exit code 3 if runs remain: repeat the command to continue."""
    # The budget includes the time that loading torch takes.
    began_s = time.monotonic()
    from realrun.clock import Budget
    from realrun.runner.warm_runner import RunnerOptions
    from realrun.server.serve_runs import serve_runs, variant_runs

    is_complete = serve_runs(
        variant_runs(file, variant, overrides=set_ or (), repeats=repeats),
        out,
        options=RunnerOptions(device=device, dtype=dtype, attention=attention.value, graphs=graphs),
        budget=Budget(budget_s, began_s=began_s),
        max_bytes=None if max_mib is None else int(max_mib * (1 << 20)),
    )
    return 0 if is_complete else UNFINISHED

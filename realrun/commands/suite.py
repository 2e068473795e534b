"""`realrun suite`: checks, profiles and real runs on one machine, in stages."""

import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from realrun.commands.options import Device
from sim.command_line import command, out_option
from sim.core.errors import InputError

if TYPE_CHECKING:
    from realrun.suite.record import StageRecord
    from sim.tables.table import Table

# What the stages' commands import, apart from FlashInfer, which uses the GPU.
_LIBRARIES = (
    "realrun.check.run_checks",
    "realrun.profiling.profile_model",
    "realrun.server.serve_runs",
)


@command()
def suite(
    *,
    out: Annotated[Path, out_option("folder of the results")],
    budget_s: Annotated[float, typer.Option(min=0, help="time limit in seconds, loading included")],
    device: Device = "auto",
    model: Annotated[
        str | None, typer.Option(help="tiny: a few small stages, to try the suite on a CPU")
    ] = None,
) -> int:
    """Check, profile and serve for real on a GPU, in stages; a second call continues."""
    began_s = time.monotonic()
    import torch

    from realrun.cli import main
    from realrun.clock import Budget
    from realrun.suite.process import preload, run_process
    from realrun.suite.run_suite import run_suite
    from realrun.suite.stages import GPU_STAGES, TINY_STAGES
    from sim.commands.output import print_table

    if model not in {None, "tiny"}:
        raise InputError(f"--model {model}: must be tiny, which tries the suite on a CPU")
    if model is None and (device.startswith("cpu") or not torch.cuda.is_available()):
        raise InputError(
            "the suite measures a GPU, but torch finds no CUDA device or --device is cpu"
            " (to try the suite on a CPU: --device cpu --model tiny)"
        )
    preload(_LIBRARIES)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out}: cannot be made: {error.strerror}") from None
    records = run_suite(
        GPU_STAGES if model is None else TINY_STAGES,
        out,
        device=device,
        budget=Budget(budget_s, began_s=began_s),
        say=_say,
        run=partial(run_process, main),
    )
    print_table(_table(records))
    return 1 if any(record.status == "failed" for record in records) else 0


def _say(line: str) -> None:
    from sim.commands.output import print_line

    # Flushed at once, because a user waits for these lines.
    print_line(line)
    sys.stdout.flush()


def _table(records: "list[StageRecord]") -> "Table":
    from sim.tables.table import Table, columns_of

    rows = []
    for record in records:
        size = "" if record.file_bytes is None else f"{record.file_bytes / 1e6:.2f}"
        rows.append((record.stage, record.status, f"{record.seconds:.0f}", size, record.file or ""))
    return Table(columns_of(("stage", "status"), ("seconds", "MB"), ("file",)), rows)

"""`realrun suite`: checks, profiles and real runs on one machine, in stages."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

from realrun.budget import Budget
from realrun.suite.process import preload, run_process
from realrun.suite.record import StageRecord
from realrun.suite.run_suite import run_suite
from realrun.suite.stages import GPU_STAGES, TINY_STAGES
from sim.commands.output import print_line, print_table
from sim.core.errors import InputError
from sim.tables.table import Table, columns_of

# What the stages' commands import, apart from FlashInfer, which uses the GPU.
_LIBRARIES = tuple(f"realrun.commands.{name}" for name in ("check", "profile", "runs"))


def suite(
    out: Path,
    *,
    budget: Budget,
    device: str,
    model: str | None,
    main: Callable[[Sequence[str]], int],
) -> bool:
    """Run the stages that are not done, and print the status of all; returns whether none failed.

    Args:
        out: the folder of the results; it is made if it does not exist.
        budget: the time for this call.
        device: a GPU; a CPU is allowed only with model `tiny`.
        model: None: all stages for a GPU; `tiny`: a few small stages.
        main: runs a command of `realrun`; returns its exit code.

    Raises:
        InputError: there is no GPU or `device` is a CPU, `model` is neither None nor `tiny`, or the
            folder cannot be made.
    """
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
        budget=budget,
        say=_say,
        run=partial(run_process, main),
    )
    print_table(_table(records))
    return all(record.status != "failed" for record in records)


def _say(line: str) -> None:
    # Flushed at once, because a user waits for these lines.
    print_line(line)
    sys.stdout.flush()


def _table(records: list[StageRecord]) -> Table:
    rows = []
    for record in records:
        size = "" if record.file_bytes is None else f"{record.file_bytes / 1e6:.2f}"
        rows.append((record.stage, record.status, f"{record.seconds:.0f}", size, record.file or ""))
    return Table(columns_of(("stage", "status"), ("seconds", "MB"), ("file",)), rows)

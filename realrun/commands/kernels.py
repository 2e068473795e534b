"""`realrun kernels`: loads the GPU kernels of models, and compiles those that are missing."""

import time
from typing import Annotated

import typer

from realrun.commands.options import AttentionChoice, AttentionOption, Device, DType
from sim.command_line import command

# Enough for a warm-up, which runs every kind of step once.
_NUM_PAGES = 1_024
_PAGE_SIZE = 16
_MAX_ROWS = 8


@command()
def kernels(
    *,
    model: Annotated[
        list[str], typer.Option(help="a model whose kernels are needed; may be repeated")
    ],
    device: Device = "auto",
    dtype: DType = "auto",
    attention: AttentionOption = AttentionChoice.AUTO,
) -> None:
    """Load the kernels of models; those that are not compiled yet take minutes each."""
    from realrun.runner.warm_runner import RunnerOptions, load_with_options, warm_runner
    from sim.commands.output import print_line

    options = RunnerOptions(device=device, dtype=dtype, attention=attention.value)
    # FlashInfer compiles a kernel when it is first used. Kernels that were compiled ahead of time,
    # or by an earlier call, are only loaded.
    for name in model:
        begin_s = time.monotonic()
        loaded = load_with_options(name, options)
        with warm_runner(
            loaded, options, num_pages=_NUM_PAGES, page_size=_PAGE_SIZE, max_rows=_MAX_ROWS
        ):
            seconds = time.monotonic() - begin_s
        print_line(f"{name}: ready after {seconds:.1f} s")
        del loaded

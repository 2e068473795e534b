"""`realrun kernels`: loads the GPU kernels of models, and compiles those that are missing."""

import time
from collections.abc import Sequence

from realrun.warm_runner import RunnerOptions, load_with_options, warm_runner
from sim.commands.output import print_line

# Enough for a warm-up, which runs every kind of step once.
_NUM_PAGES = 1_024
_PAGE_SIZE = 16
_MAX_ROWS = 8


def kernels(models: Sequence[str], options: RunnerOptions) -> None:
    """Warm up each model once, and print how long that took.

    FlashInfer compiles a kernel when it is first used, which takes minutes. Kernels that were
    compiled ahead of time, or by an earlier call, are only loaded.

    Raises:
        InputError: there is no such model or device, or the model does not fit.
    """
    for name in models:
        begin_s = time.monotonic()
        model = load_with_options(name, options)
        with warm_runner(
            model, options, num_pages=_NUM_PAGES, page_size=_PAGE_SIZE, max_rows=_MAX_ROWS
        ):
            seconds = time.monotonic() - begin_s
        print_line(f"{name}: ready after {seconds:.1f} s")
        del model

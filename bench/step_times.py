"""Writes linear step times as a table for Dynamo's replay: `python -m bench.step_times`.

This is a program of its own, because it imports numpy. A process that measures the memory of others
must be small, and numpy would make it large.
"""

import argparse
from pathlib import Path

import numpy as np

from sim.core.arrays import Float64
from sim.core.files import atomic_path

_MOST_TOKENS = 1e7
# Linear interpolation of 1 / x between points 4 % apart is at most 0.04 % off.
_CONTEXT_POINTS = 400


def step_time_table(
    *, step_s: float, prefill_token_s: float, decode_row_s: float, context_token_s: float
) -> dict[str, Float64]:
    """Times in ms: of prefill over new tokens, of decode over total and mean context.

    Such tables do not know a prefill's context. The number of decode rows is the total context over
    the mean context.
    """
    new = np.array([0.0, _MOST_TOKENS])
    context = np.array([0.0, _MOST_TOKENS])
    mean_context = np.geomspace(1.0, _MOST_TOKENS, _CONTEXT_POINTS)
    rows = context[:, None] / mean_context[None, :]
    decode_s = step_s + decode_row_s * rows + context_token_s * context[:, None]
    return {
        "prefill_isl": new,
        "prefill_ttft_ms": (step_s + prefill_token_s * new) * 1e3,
        "decode_active_kv_tokens": context,
        "decode_context_length": mean_context,
        "decode_itl": decode_s * 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Write step times for Dynamo's replay.")
    parser.add_argument("path", type=Path)
    for name in ("step-s", "prefill-token-s", "decode-row-s", "context-token-s"):
        parser.add_argument(f"--{name}", type=float, default=0.0)
    arguments = vars(parser.parse_args())
    path = arguments.pop("path")
    with atomic_path(path) as beside, beside.open("wb") as file:
        np.savez(file, allow_pickle=False, **step_time_table(**arguments))


if __name__ == "__main__":
    main()

"""Linear step times as a table that Dynamo's replay interpolates: `python -m bench.step_times`.

A process of its own, because numpy would make its caller larger than some of what that measures.
"""

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sim.core.atomic import atomic_path

Float64 = NDArray[np.float64]

_MOST_TOKENS = 1e7
# 1 / x between two points 4 % apart is off by 2 in 10,000 at most.
_CONTEXT_POINTS = 400


def step_time_table(
    *, step_s: float, prefill_token_s: float, decode_row_s: float, context_token_s: float
) -> dict[str, Float64]:
    """Milliseconds over new tokens, and over context tokens and mean context of decode rows.

    Prefill steps have no context there; decode rows are context tokens over mean context.
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

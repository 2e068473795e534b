"""Compares vLLM's decisions with servetwin's: `python oracle/report_vllm.py FOLDER`.

The exit code is 1 if any case differs.
"""

import sys
from pathlib import Path

from sim.testing.vllm_conformance import (
    VllmCase,
    find_vllm_cases,
    first_vllm_divergence,
    serve_vllm_case,
)


def disagreement(case: VllmCase) -> str:
    """The first difference, with and without fast-forward; empty if there is none."""
    for fast_forward in (True, False):
        ours = serve_vllm_case(case, fast_forward=fast_forward)
        if divergence := first_vllm_divergence(ours, case):
            return str(divergence)
    return ""


def never_ends(case: VllmCase) -> bool:
    """Whether requests preempt each other forever and none gets a token (README.md)."""
    return any(line.get("status") == "stuck" for line in case.decisions)


def main() -> int:
    cases = find_vllm_cases(Path(sys.argv[1]))
    num_equal = num_endless = num_steps = 0
    for case in cases:
        if not case.decisions:
            print(f"{case.name}: vLLM's side failed")
        elif never_ends(case):
            print(f"{case.name}: not compared, vLLM never ends", flush=True)
            num_endless += 1
        elif verdict := disagreement(case):
            print(f"{case.name}: differs at {verdict}\n", flush=True)
        else:
            num_equal += 1
            num_steps += sum(line["kind"] == "step" for line in case.decisions)
    num_compared = len(cases) - num_endless
    print(
        f"{num_equal} of {num_compared} cases agree in every field of {num_steps:,} steps", end=""
    )
    print(f"; {num_endless} more never end" if num_endless else "")
    return 0 if num_equal == num_compared else 1


if __name__ == "__main__":
    sys.exit(main())

"""Compares vLLM's decisions with servetwin's: `python -m oracle.vllm.report FOLDER`.

It ends with a list of the steps that differ, the first of each case. The exit code is 1 if any
does.
"""

import sys
from pathlib import Path

from sim.engine.logged_decision import Divergence
from tests.support.vllm_conformance import (
    VllmCase,
    find_vllm_cases,
    first_vllm_divergence,
    serve_vllm_case,
)


def disagreement(case: VllmCase) -> Divergence | None:
    """The first difference, with and without fast-forward."""
    for fast_forward in (True, False):
        ours = serve_vllm_case(case, fast_forward=fast_forward)
        if divergence := first_vllm_divergence(ours, case):
            return divergence
    return None


def never_ends(case: VllmCase) -> bool:
    """Whether requests preempt each other forever and none gets a token (README.md)."""
    return any(line.get("status") == "stuck" for line in case.decisions)


def difference(case: VllmCase) -> str:
    """Where a case differs, in one line; empty if it does not. Prints the step that does."""
    if not case.decisions:
        return "vLLM's side failed"
    try:
        divergence = disagreement(case)
    except Exception as error:  # whatever a new version of vLLM brings about
        return f"servetwin's side failed: {type(error).__name__}: {error}"
    if divergence is None:
        return ""
    print(f"{case.name}: differs at {divergence}\n", flush=True)
    return f"{divergence.where}: {', '.join(divergence.fields)}"


def main() -> int:
    cases = find_vllm_cases(Path(sys.argv[1]))
    compared = [case for case in cases if not never_ends(case)]
    differences = {case.name: difference(case) for case in compared}
    equal = [case for case in compared if not differences[case.name]]
    num_steps = sum(line["kind"] == "step" for case in equal for line in case.decisions)
    print(f"{len(equal)} of {len(compared)} cases agree in every field of {num_steps:,} steps")
    if len(compared) < len(cases):
        print(f"{len(cases) - len(compared)} more never end (oracle/README.md)")
    for name, where in differences.items():
        if where:
            print(f"{name}: {where}")
    return int(len(equal) < len(compared))


if __name__ == "__main__":
    sys.exit(main())

"""Compares SGLang's decisions with servetwin's: `python -m oracle.sglang.report FOLDER`.

The exit code is 1 if any case differs.
"""

import sys
from pathlib import Path

from sim.core.errors import InputError, InvariantError
from tests.support.conformance import (
    Line,
    ReferenceCase,
    case_until_error,
    find_cases,
    first_divergence,
    serve_case,
)
from tests.support.one_side import first_difference_of_side, serve_side, side_until_error


def disagreement(case: ReferenceCase, theirs: list[Line]) -> str:
    """The first difference, with and without fast-forward; empty if there is none."""
    for fast_forward in (True, False):
        if "disaggregation_mode" in case.config():
            ours, compare = serve_side(case, fast_forward=fast_forward), first_difference_of_side
        else:
            ours, compare = serve_case(case, fast_forward=fast_forward), first_divergence
        expected = theirs
        if (until_ns := blocked_ns(ours, theirs)) is not None:
            ours = [line for line in _steps(ours) if line["t_start_ns"] < until_ns]
            expected = [line for line in _steps(theirs) if line["t_start"] * 1e9 < until_ns - 1]
        elif stopped_serving(theirs):
            ours, expected = _steps(ours)[: len(_steps(theirs))], _steps(theirs)
        if ending(theirs):
            ours = ours[: len(expected)]
        if divergence := compare(ours, expected):
            return str(divergence)
    return ""


def before_error(case: ReferenceCase, theirs: list[Line]) -> tuple[int, str]:
    """How many steps are there before servetwin ends with an error, and the first that differs.

    Those that run when it ends are not counted: one, or one of each rank.
    """
    config = case.config()
    is_side = "disaggregation_mode" in config
    ours = side_until_error(case) if is_side else case_until_error(case)
    expected = _steps(theirs)
    if ending(theirs) and config.get("ranks", 1) > 1:
        # SGLang ends before its ranks know how long their last step takes.
        ours, expected = (
            [each for each in side if each["step"] < expected[-1]["step"]]
            for side in (ours, expected)
        )
    divergence = first_divergence(ours, expected[: len(ours)])
    if divergence is None and ending(theirs):
        num_more = len(expected) - len(ours)
        if num_more > config.get("ranks", 1) * config.get("stages", 1):
            return len(ours), f"SGLang goes on for {num_more} steps"
    return len(ours), str(divergence or "")


def _steps(lines: list[Line]) -> list[Line]:
    return [line for line in lines if line["kind"] == "step"]


def stopped_serving(theirs: list[Line]) -> bool:
    """Whether SGLang keeps requests waiting for ever that servetwin serves (decision record 3)."""
    return any(line.get("status") == "stuck" for line in theirs)


def ending(theirs: list[Line]) -> str:
    """The error with which SGLang ends; empty if it does not."""
    return next((line["error"] for line in theirs if line["kind"] == "error"), "")


def blocked_ns(ours: list[Line], theirs: list[Line]) -> float | None:
    """When servetwin first rejects or admits a request that SGLang keeps waiting for ever.

    Such a request blocks those behind it until its client gives up, or until it is late. None:
    there is none.
    """
    status = {line["rid"]: line["status"] for line in ours if line["kind"] == "req"}
    admitted_ns: dict[str, float] = {}
    for step in _steps(ours):
        for rid, _, _ in step["prefill"]:
            admitted_ns.setdefault(rid, step["t_start_ns"])
    times = []
    for line in theirs:
        if line["kind"] == "req" and line["first_admit"] is None:
            if status[line["rid"]] == "rejected" != line["status"]:
                times.append(line["arrival"] * 1e9)
            elif line["status"] == "stuck" and line["rid"] in admitted_ns:
                times.append(admitted_ns[line["rid"]])
    return min(times, default=None)


def main() -> int:
    cases = find_cases(Path(sys.argv[1]))
    num_equal = num_stopped = num_ended = num_refused = num_expected = num_steps = 0
    for case in cases:
        try:
            theirs = list(case.read_lines("decisions"))
        except InputError:
            print(f"{case.name}: SGLang's side failed")
            continue
        try:
            verdict = disagreement(case, theirs)
        except (InputError, InvariantError) as error:
            num_before, verdict = before_error(case, theirs)
            print(f"{case.name}: servetwin stops after {num_before:,} steps: {error}")
            print(f"    SGLang: {ending(theirs)[:120] or 'no error'}")
            num_refused += 1
            if verdict:
                print(f"    differs before at {verdict}\n")
            elif "never fits" in str(error) or ending(theirs):
                num_expected += 1
            continue
        if verdict:
            print(f"{case.name}: differs at {verdict}\n")
            continue
        ended, stopped = ending(theirs), stopped_serving(theirs)
        remark = "; SGLang stops serving there (docs/explanation/adr/0003)" if stopped else ""
        remark += f": {ended[:120]}" if ended else ""
        print(f"{case.name}: {len(_steps(theirs)):,} steps agree{remark}", flush=True)
        num_equal += 1
        num_stopped += stopped
        num_ended += bool(ended)
        num_steps += len(_steps(theirs))
    print(f"{num_equal} of {len(cases)} cases agree in every field of {num_steps:,} steps", end="")
    print(
        f"; in {num_stopped} of them SGLang stops serving half-way" if num_stopped else "", end=""
    )
    print(f", in {num_ended} of these with an error" if num_ended else "")
    if num_refused:
        print(
            f"{num_refused} more end with an error here; in {num_expected} of them SGLang", end=""
        )
        print(" would keep a request for ever, or ends with an error, too")
    return 0 if num_equal + num_expected == len(cases) else 1


if __name__ == "__main__":
    sys.exit(main())

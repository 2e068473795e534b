"""Compares decided cases with ours: `python oracle/report.py FOLDER`; exit code 1 if any differ."""

import sys
from pathlib import Path

from sim.testing.conformance import ReferenceCase, find_cases, first_divergence, serve_case


def agreement(case: ReferenceCase) -> str:
    """Empty if a case agrees with and without fast-forward, else what does not."""
    try:
        theirs = list(case.read_lines("decisions"))
    except FileNotFoundError:
        return "SGLang's side failed"
    if any(line.get("status") == "stuck" for line in theirs):
        return "SGLang stopped serving (docs/adr/0003)"
    for fast_forward in (True, False):
        if divergence := first_divergence(serve_case(case, fast_forward=fast_forward), theirs):
            return str(divergence)
    return ""


def main() -> int:
    cases = find_cases(Path(sys.argv[1]))
    verdicts = {case.name: agreement(case) for case in cases}
    different = {name: verdict for name, verdict in verdicts.items() if verdict}
    for name, verdict in different.items():
        print(f"case {name}: {verdict}\n")
    print(f"{len(cases) - len(different)} of {len(cases)} cases agree in every field")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())

"""Simulates a fixed set of scenarios and writes all that was decided; for two builds to compare.

`python decision_logs.py OUT.jsonl [MODULE ...]`: these modules must be compiled.
"""

import importlib
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings

from sim.report.metrics import summarise
from sim.testing.conformance import find_cases, serve_case
from sim.testing.random_scenarios import random_scenarios
from sim.testing.serve import serve

NUM_RANDOM = 60
CASES = Path(__file__).parents[1] / "conformance" / "cases"


def write_random_scenarios(out):
    """Every policy, mode and cache; the same scenarios in every process."""

    @settings(
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=NUM_RANDOM,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(random_scenarios())
    def write(scenario):
        served = serve(scenario.workload, scenario.config, scenario.latencies())
        out.write(f"{served.text}\n{summarise(served.log)}\n")

    write()


def write_conformance_cases(out):
    for case in find_cases(CASES):
        for line in serve_case(case):
            out.write(f"{line}\n")


def main(path, modules):
    for module in modules:
        origin = importlib.import_module(module).__file__
        if not origin.endswith(tuple(EXTENSION_SUFFIXES)):
            sys.exit(f"{module} is not compiled: {origin}")
    with Path(path).open("w", encoding="utf-8") as out:
        write_random_scenarios(out)
        write_conformance_cases(out)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

"""Counts the function calls of one simulation: `python -m bench.count_calls SCENARIO [KEY=VALUE]`.

Prints requests, launches, and calls of Python and built-in functions, as JSON. A launch is a row of
the log's steps: one step, or a run of decode steps that are simulated at once.
"""

import json
import sys
from cProfile import Profile
from pathlib import Path

from sim.commands.running.simulate import simulate_built
from sim.des.servers import RunOptions
from sim.scenario.build import build
from sim.scenario.load import load_scenario


def main() -> None:
    path, *overrides = sys.argv[1:]
    built = build(load_scenario(Path(path), overrides))
    profile = Profile()
    log = profile.runcall(simulate_built, built, RunOptions())
    counts = {
        "requests": built.workload.num_requests,
        "launches": len(log.steps.mode),
        "calls": sum(entry.callcount for entry in profile.getstats()),
    }
    json.dump(counts, sys.stdout)


if __name__ == "__main__":
    main()

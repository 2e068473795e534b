"""Measures how the cost of a simulation grows, as exponents: `python -m bench.scaling`."""

import argparse
import gc
import sys
import time
from dataclasses import asdict, dataclass

from bench.axes import VariedSize, axes
from bench.fit import exponent
from bench.places import OUT
from bench.process import use_one_core
from bench.results import markdown_table, save
from sim.core.errors import InputError
from sim.des.deployment import Deployment
from sim.des.run import simulate
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text


@dataclass(frozen=True, slots=True)
class Growth:
    """The costs that were measured along an `VariedSize`.

    Attributes:
        name, cost, goal: as in its `VariedSize`.
        sizes: the values that were measured.
        costs: one for each size, in the unit that `cost` names.
        exponent: that of the cost as a power of the size.
    """

    name: str
    cost: str
    goal: str
    sizes: list[int]
    costs: list[float]
    exponent: float


def main() -> None:
    parser = argparse.ArgumentParser(description="How the cost of a simulation grows.")
    parser.add_argument(
        "--repeats", type=int, default=3, help="runs of each size; the fastest one counts"
    )
    parser.add_argument(
        "--only", default="", help="only sizes whose name has this text; saves nothing"
    )
    arguments = parser.parse_args()
    try:
        _run(arguments.repeats, arguments.only)
    except InputError as error:
        sys.stderr.write(f"bench: {error}\n")
        sys.exit(2)


def _run(repeats: int, only: str) -> None:
    if repeats < 1:
        raise InputError(f"--repeats: must be at least 1, got {repeats}")
    OUT.mkdir(parents=True, exist_ok=True)
    use_one_core()
    found = []
    for axis in axes():
        if only in axis.name:
            found.append(measure_growth(axis, repeats))
            sys.stdout.write(" | ".join(cells(found[-1])) + "\n")
            sys.stdout.flush()
    if only:
        return
    header = ("what grows", "sizes", "cost", "of each size", "exponent", "goal")
    page = save(
        "scaling",
        [markdown_table(header, [cells(growth) for growth in found])],
        [asdict(growth) for growth in found],
    )
    sys.stdout.write(f"{page}\n")


def measure_growth(axis: VariedSize, repeats: int) -> Growth:
    """Measure the cost at every size.

    Raises:
        InputError: a cost is too small to measure.
    """
    scale = 1e3 if axis.cost.startswith("ms") else 1.0
    costs = [scale * _cost_s(axis, size, repeats) for size in axis.sizes]
    slope = exponent(axis.sizes, costs)
    return Growth(axis.name, axis.cost, axis.goal, list(axis.sizes), costs, slope)


def _cost_s(axis: VariedSize, size: int, repeats: int) -> float:
    seconds = least_cpu_s(axis.scenario(size), repeats)
    if axis.scenario_without is not None:
        seconds -= least_cpu_s(axis.scenario_without(size), repeats)
    return seconds / axis.per(size)


def least_cpu_s(scenario: str, repeats: int) -> float:
    """The least processor time of several builds and simulations of a scenario.

    Raises:
        InputError: the scenario is wrong.
    """
    times_s = []
    for _ in range(repeats):
        gc.collect()
        begin_s = time.process_time()
        built = build(load_scenario_text(scenario, []))
        simulate(built.workload, Deployment.of_one_kind(built.scheduler, built.latencies))
        times_s.append(time.process_time() - begin_s)
    return min(times_s)


def cells(growth: Growth) -> list[str]:
    """One row of the table."""
    return [
        growth.name,
        ", ".join(f"{size:,}" for size in growth.sizes),
        growth.cost,
        ", ".join(f"{cost:.3g}" for cost in growth.costs),
        f"{growth.exponent:.2f}",
        growth.goal,
    ]


if __name__ == "__main__":
    main()

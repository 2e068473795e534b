"""Measures the simulation alone, without start-up and tables: `python -m bench.launches`.

Function calls a launch, counted in pure Python; and requests a second, compiled and in pure Python.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bench.commands import ours
from bench.places import OUT, SCENARIOS, TRACE
from bench.process import measure, use_one_core
from bench.results import markdown_table, save
from sim.compiled.finder import PURE
from sim.core.errors import InputError

_PURE = {**os.environ, PURE: "1"}
HEADER = (
    "work",
    "requests",
    "launches",
    "calls a launch",
    "calls a request",
    "requests/s",
    "in pure Python",
)
# Shortened where that does not change what a launch costs: scenario and options.
_WORKS = {
    "Mooncake, 1 replica": ("mooncake.yaml", ()),
    "Mooncake, 4 replicas, page size 1": ("mooncake.yaml", ("replicas=4", "scheduler.page_size=1")),
    "Mooncake, arrivals x 4, lpm": (
        "mooncake.yaml",
        ("workload.time_scale=0.25", "scheduler.schedule_policy=lpm"),
    ),
    "dense, vLLM": ("dense-vllm.yaml", ("workload.requests_per_client=128",)),
    "dense, SGLang": ("dense-sglang.yaml", ("workload.requests_per_client=128",)),
    "cache pressure, SGLang": ("cache-pressure.yaml", ("workload.sessions=1024",)),
    "long decode, SGLang": ("long-decode.yaml", ()),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """What one work costs.

    Attributes:
        work: its name.
        requests, launches, calls: see `bench.count_calls`.
        wall_s, pure_wall_s: the shortest time of the simulation alone, with the build that is
            installed and in pure Python.
    """

    work: str
    requests: int
    launches: int
    calls: int
    wall_s: float
    pure_wall_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description="What a launch and a request cost.")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each; the fastest counts")
    rounds = parser.parse_args().rounds
    OUT.mkdir(parents=True, exist_ok=True)
    use_one_core()
    found = []
    try:
        for cost in _costs(rounds):
            sys.stdout.write(" | ".join(cells(cost)) + "\n")
            sys.stdout.flush()
            found.append(cost)
    except InputError as error:
        sys.stderr.write(f"bench: {error}\n")
        sys.exit(2)
    table = markdown_table(HEADER, map(cells, found))
    page = save("launches", [table], [asdict(cost) for cost in found])
    sys.stdout.write(f"{page}\n")


def _costs(rounds: int) -> Iterator[Cost]:
    for work, (scenario, overrides) in _WORKS.items():
        if scenario == "mooncake.yaml" and not TRACE.exists():
            sys.stderr.write(f"bench: {work} is left out: there is no {TRACE}\n")
            continue
        count = [sys.executable, "-m", "bench.count_calls", str(SCENARIOS / scenario), *overrides]
        counts = _output(count, _PURE)
        run = ours(scenario, *overrides, options=("--format", "json"))
        times_s = [
            min(_output(run, environment)["wall_seconds"] for _ in range(rounds))
            for environment in (os.environ, _PURE)
        ]
        yield Cost(work, **counts, wall_s=times_s[0], pure_wall_s=times_s[1])


def _output(command: list[str], environment: Mapping[str, str]) -> dict[str, Any]:
    log = OUT / "launches.log"
    measure(command, log, environment=environment)
    output: dict[str, Any] = json.loads(log.read_text(encoding="utf-8"))
    return output


def cells(cost: Cost) -> list[str]:
    """One row of the table."""
    return [
        cost.work,
        f"{cost.requests:,}",
        f"{cost.launches:,}",
        f"{cost.calls / cost.launches:,.0f}",
        f"{cost.calls / cost.requests:,.0f}",
        f"{cost.requests / cost.wall_s:,.0f}",
        f"{cost.requests / cost.pure_wall_s:,.0f}",
    ]


if __name__ == "__main__":
    main()

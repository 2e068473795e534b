"""Compares servetwin's hit rates and times with those of Dynamo's replay, on one trace.

Run it with `python -m bench.agreement`.
"""

import argparse
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import quantiles

from bench import inputs
from bench.commands import ours, require_peers
from bench.dynamo_commands import DynamoReplay, command_1_4, step_times_command
from bench.outcomes import (
    BenchOutcome,
    Key,
    dynamo_outcome,
    dynamo_ttfts_ms,
    our_outcome,
    our_ttfts_ms,
)
from bench.places import INPUTS, OUT, TRACE
from bench.process import measure
from bench.results import markdown_table, save
from bench.rules import SimulatorComparison, comparisons
from sim.core.errors import InputError

HEADER = (
    "rules (servetwin / Dynamo's replay)",
    "hit rate, %",
    "mean TTFT, s",
    "p99 TTFT, s",
    "mean TPOT, ms",
    "makespan, s",
    "Dynamo's TTFT later by, ms (p5 / p50 / p95)",
)
_STEP_TIMES = ("--step-s", "0.010", "--prefill-token-s", "2.5e-5")


@dataclass(frozen=True, slots=True)
class Pair:
    """The outcomes of both simulators in one comparison.

    Attributes:
        replicas: the number of servers.
        label: that of the `SimulatorComparison`.
        ours, theirs: outcomes of servetwin and of Dynamo's replay.
        ttft_difference_ms: theirs - ours, request by request: 5th, 50th and 95th percentile.
    """

    replicas: int
    label: str
    ours: BenchOutcome
    theirs: BenchOutcome
    ttft_difference_ms: tuple[float, float, float]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare servetwin with Dynamo's replay.")
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 4])
    arguments = parser.parse_args()
    try:
        _run(arguments.replicas)
    except InputError as error:
        sys.stderr.write(f"bench: {error}\n")
        sys.exit(2)


def _run(replicas: list[int]) -> None:
    require_peers()
    if not TRACE.exists():
        sys.stderr.write(f"bench: nothing is compared: there is no {TRACE}\n")
        return
    INPUTS.mkdir(parents=True, exist_ok=True)
    step_times = INPUTS / "agreement-step-times.npz"
    subprocess.run(step_times_command(step_times, *_STEP_TIMES), check=True)  # noqa: S603
    tables: list[str] = []
    pairs: list[Pair] = []
    for num_replicas in replicas:
        found = [compare(each, num_replicas, step_times) for each in comparisons()]
        pairs += found
        tables += [f"Replicas: {num_replicas}", table(found)]
        sys.stdout.write("\n\n".join(tables[-2:]) + "\n\n")
        sys.stdout.flush()
    page = save("agreement", tables, [asdict(pair) for pair in pairs])
    sys.stdout.write(f"{page}\n")


def compare(comparison: SimulatorComparison, replicas: int, step_times: Path) -> Pair:
    """Run both simulators.

    Raises:
        InputError: one of them fails, or they do not finish the same number of requests.
    """
    trace = (
        inputs.conversation()[0]
        if comparison.shared_blocks is None
        else inputs.unshared_conversation(comparison.shared_blocks)
    )
    mine, my_ttfts = _run_ours(comparison, replicas, trace)
    other, their_ttfts = _run_dynamo(comparison, replicas, trace, step_times)
    if mine.num_finished != other.num_finished:
        finished = f"servetwin finished {mine.num_finished}, Dynamo's replay {other.num_finished}"
        raise InputError(f"{comparison.label}: {finished}")
    later = quantiles(
        (their_ttfts[key] - ttft_ms for key, ttft_ms in my_ttfts.items() if key in their_ttfts),
        n=20,
    )
    return Pair(replicas, comparison.label, mine, other, (later[0], later[9], later[18]))


def _run_ours(
    comparison: SimulatorComparison, replicas: int, trace: Path
) -> tuple[BenchOutcome, dict[Key, float]]:
    requests, summary = OUT / "agreement-ours.csv", OUT / "agreement-ours.json"
    overrides = (f"replicas={replicas}", f"workload.path={trace}", *comparison.ours)
    options = ("--format", "json", "--requests", str(requests))
    measure(ours("agreement.yaml", *overrides, options=options), summary)
    return our_outcome(summary), our_ttfts_ms(requests)


def _run_dynamo(
    comparison: SimulatorComparison, replicas: int, trace: Path, step_times: Path
) -> tuple[BenchOutcome, dict[Key, float]]:
    requests, report = OUT / "agreement-dynamo.jsonl", OUT / "agreement-dynamo.json"
    replay = DynamoReplay(
        step_times=step_times,
        page_size=64,
        pool_tokens=819_200,
        slots=4096,
        sglang=comparison.theirs,
        replicas=replicas,
        trace=trace,
    )
    command = command_1_4(replay, report, "--report-jsonl", str(requests))
    measure(command, OUT / "agreement-dynamo.log")
    return dynamo_outcome(report), dynamo_ttfts_ms(requests)


def table(pairs: list[Pair]) -> str:
    """The table; a cell with two figures has servetwin's first."""
    return markdown_table(HEADER, [_cells(pair) for pair in pairs])


def _cells(pair: Pair) -> list[str]:
    mine, other = pair.ours, pair.theirs
    return [
        pair.label,
        f"{100 * mine.hit_rate:.2f} / {100 * other.hit_rate:.2f}",
        f"{mine.mean_ttft_s:.3f} / {other.mean_ttft_s:.3f}",
        f"{mine.p99_ttft_s:.2f} / {other.p99_ttft_s:.2f}",
        f"{mine.mean_tpot_ms:.2f} / {other.mean_tpot_ms:.2f}",
        f"{mine.makespan_s:.1f} / {other.makespan_s:.1f}",
        " / ".join(f"{difference:.1f}" for difference in pair.ttft_difference_ms),
    ]


if __name__ == "__main__":
    main()

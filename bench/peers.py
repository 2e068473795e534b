"""Races servetwin against other simulators, the peers.

Run it with `python -m bench.peers` or `make bench-peers`.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from statistics import median

from bench import inputs
from bench.commands import require_peers
from bench.places import INPUTS, OUT, TRACE
from bench.process import use_one_core
from bench.races import (
    STEP_TIMES,
    Race,
    chats_race,
    conversation_races,
    million_race,
    start_up_race,
)
from bench.results import markdown_table, save
from bench.run_race import Result, Runs, run_in_turns, run_once
from sim.core.errors import InputError

HEADER = (
    "work",
    "peer",
    "compiled: ratio of minima",
    "compiled: of medians",
    "pure: ratio of minima",
    "pure: of medians",
    "compiled, s (min / median)",
    "pure, s",
    "peer, s",
    "compiled, requests/s",
    "pure, requests/s",
    "peer, requests/s",
    "compiled, MiB",
    "pure, MiB",
    "peer, MiB",
)


def main() -> None:
    arguments = _arguments()
    try:
        _run(arguments.rounds, million=arguments.million, only=arguments.only)
    except InputError as error:
        sys.stderr.write(f"bench: {error}\n")
        sys.exit(2)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Race servetwin against the peers, on one core.")
    parser.add_argument("--rounds", type=int, default=5, help="measured runs of each command")
    parser.add_argument("--million", action="store_true", help="also a million requests, once")
    parser.add_argument(
        "--only", default="", help="only work whose name has this text; saves nothing"
    )
    return parser.parse_args()


def _run(rounds: int, *, million: bool, only: str) -> None:
    if rounds < 1:
        raise InputError(f"--rounds: must be at least 1, got {rounds}")
    require_peers()
    INPUTS.mkdir(parents=True, exist_ok=True)
    use_one_core()
    results = []
    for race in _races(million=million):
        if only not in race.work:
            continue
        if race.work == million_race().work:
            result = run_once(race, folder=OUT)
        else:
            result = run_in_turns(race, rounds=rounds, folder=OUT)
        sys.stdout.write(" | ".join(cells(result)) + "\n")
        sys.stdout.flush()
        results.append(result)
    if only:
        return
    page = save("peers", [table(results)], [asdict(result) for result in results])
    sys.stdout.write(f"{page}\n")


def _races(*, million: bool) -> Iterator[Race]:
    if TRACE.exists():
        step_times = INPUTS / "step-times.npz"
        command = [sys.executable, "-m", "bench.step_times", str(step_times), *STEP_TIMES]
        subprocess.run(command, check=True)  # noqa: S603
        yield from conversation_races(inputs.conversation(), step_times)
    else:
        sys.stderr.write(f"bench: the work on Mooncake's trace is left out: there is no {TRACE}\n")
    _, theirs = inputs.chats()
    yield chats_race(theirs)
    yield start_up_race()
    if million:
        yield million_race()


def table(results: list[Result]) -> str:
    """The table of races; a ratio is the peer's time over ours."""
    return markdown_table(HEADER, [cells(result) for result in results])


def cells(result: Result) -> list[str]:
    """One row of the table."""
    contenders = (result.compiled, result.pure, result.theirs)
    return [
        result.work,
        result.peer or "-",
        *(_number(ratio) for ratio in _ratios(result, result.compiled)),
        *(_number(ratio) for ratio in _ratios(result, result.pure)),
        *map(_seconds, contenders),
        *(_requests_per_s(runs, result.num_requests) for runs in contenders),
        *map(_mib, contenders),
    ]


def _ratios(result: Result, ours: Runs | None) -> tuple[float | None, float | None]:
    return result.min_ratio(ours), result.median_ratio(ours)


def _number(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _seconds(runs: Runs | None) -> str:
    return f"{min(runs.wall_s):.2f} / {median(runs.wall_s):.2f}" if runs else "-"


def _requests_per_s(runs: Runs | None, requests: int) -> str:
    return f"{requests / median(runs.wall_s):,.0f}" if runs and requests else "-"


def _mib(runs: Runs | None) -> str:
    return f"{max(runs.peak_mib):.0f}" if runs else "-"


if __name__ == "__main__":
    main()

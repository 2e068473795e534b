"""Races servetwin against other simulators, the peers.

Run it with `python -m bench.peers` or `make bench-peers`.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

from bench import inputs
from bench.commands import require_peers
from bench.dynamo_commands import step_times_command
from bench.places import INPUTS, OUT, TRACE
from bench.process import use_one_core
from bench.races import (
    STEP_TIMES,
    Race,
    agents_race,
    aisimulate_races,
    chats_race,
    conversation_races,
    drafts_race,
    million_race,
    server_races,
    start_up_race,
)
from bench.results import markdown_table, save
from bench.run_race import Result, Runs, run_in_turns, run_once
from sim.core.errors import InputError


def main() -> None:
    arguments = _arguments()
    try:
        _run(arguments)
    except InputError as error:
        sys.stderr.write(f"bench: {error}\n")
        sys.exit(2)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Race servetwin against the peers, on one core.")
    parser.add_argument("--rounds", type=int, default=5, help="measured runs of each command")
    parser.add_argument("--million", action="store_true", help="also a million requests, once")
    parser.add_argument(
        "--trace", type=Path, default=TRACE, help="another trace in Mooncake's format, gzipped"
    )
    parser.add_argument(
        "--only", default="", help="only work whose name has this text; saves nothing"
    )
    return parser.parse_args()


def _run(arguments: argparse.Namespace) -> None:
    if arguments.rounds < 1:
        raise InputError(f"--rounds: must be at least 1, got {arguments.rounds}")
    require_peers()
    INPUTS.mkdir(parents=True, exist_ok=True)
    use_one_core()
    results = []
    for race in races(arguments.trace, million=arguments.million):
        if arguments.only not in race.work:
            continue
        if race.work == million_race().work:
            result = run_once(race, folder=OUT)
        else:
            result = run_in_turns(race, rounds=arguments.rounds, folder=OUT)
        sys.stdout.write(" | ".join(cells(result)) + "\n")
        sys.stdout.flush()
        results.append(result)
    if arguments.only or arguments.trace != TRACE:
        return
    page = save("peers", tables(results), [asdict(result) for result in results])
    sys.stdout.write(f"{page}\n")


def races(trace: Path, *, million: bool) -> Iterator[Race]:
    """All races; those on Mooncake's trace are left out where it is not."""
    if trace.exists():
        path, num_requests = inputs.conversation(trace)
        yield from conversation_races(path, num_requests, _step_times("mooncake"))
        yield from server_races(path, num_requests, _step_times("mooncake"))
    else:
        sys.stderr.write(f"bench: the work on Mooncake's trace is left out: there is no {trace}\n")
    b200 = _step_times("dense-vllm")
    yield from aisimulate_races(inputs.turns(), b200)
    yield drafts_race(b200)
    yield agents_race(inputs.agents(), _step_times("mooncake"))
    _, theirs = inputs.chats()
    yield chats_race(theirs)
    yield start_up_race()
    if million:
        yield million_race()


def _step_times(scenario: str) -> Path:
    path = INPUTS / f"{scenario}.npz"
    command = step_times_command(path, *STEP_TIMES[scenario])
    subprocess.run(command, check=True)  # noqa: S603
    return path


def tables(results: Sequence[Result]) -> list[str]:
    """A table of the races against the same peers; what was raced first comes first."""
    groups: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        groups.setdefault(tuple(result.theirs), []).append(result)
    return [markdown_table(header(peers), map(cells, group)) for peers, group in groups.items()]


def header(peers: Sequence[str]) -> list[str]:
    """The columns of a table of races against these peers."""
    names = ("servetwin", *peers)
    return [
        "work",
        *(f"servetwin / {peer} (minima, medians, processor)" for peer in peers),
        *(f"{name}, s (min / median)" for name in names),
        *(f"{name}, requests/s" for name in names),
        *(f"{name}, MiB" for name in names),
    ]


def cells(result: Result) -> list[str]:
    """One row of a table."""
    contenders = (result.ours, *result.theirs.values())
    return [
        result.work,
        *(", ".join(f"{ratio:.2f}" for ratio in result.ratios(peer)) for peer in result.theirs),
        *(f"{min(runs.wall_s):.2f} / {median(runs.wall_s):.2f}" for runs in contenders),
        *(_requests_per_s(runs, result.num_requests) for runs in contenders),
        *(f"{max(runs.peak_mib):.0f}" for runs in contenders),
    ]


def _requests_per_s(runs: Runs, requests: int) -> str:
    return f"{requests / median(runs.wall_s):,.0f}" if requests else "-"


if __name__ == "__main__":
    main()

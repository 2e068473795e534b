"""How near a run is to one that decides nothing: `python -m bench.limit`.

Such a run would still start, read the scenario and its traffic, write as many numbers into the log,
and make the summary.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass

from bench.peers import races
from bench.places import INPUTS, OUT, TRACE
from bench.process import measure, use_one_core
from bench.races import Race
from bench.results import markdown_table, save
from sim.core.errors import InputError

# As the command starts (`sim.__main__`).
_RUN = """
from sim.core.garbage import rare_collections
from sim.core.start import start

start()
with rare_collections():
    from bench.parts_of_run import main

    main()
"""
HEADER = ("work", "run, s", "limit, s", "run / limit", "start", "read", "write", "summarise")


@dataclass(frozen=True, slots=True)
class Parts:
    """Processor time of the parts of a run, in s.

    Attributes:
        start: until the scenario is read: Python, libraries, our modules.
        read: the scenario and its traffic.
        simulate: decide all steps and log them.
        summarise: make the summary.
        write: write the numbers of the log again, without deciding anything.
    """

    start: float
    read: float
    simulate: float
    summarise: float
    write: float

    @property
    def run(self) -> float:
        return self.start + self.read + self.simulate + self.summarise

    @property
    def limit(self) -> float:
        return self.start + self.read + self.write + self.summarise


def main() -> None:
    parser = argparse.ArgumentParser(description="How near a run is to one that decides nothing.")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each; the fastest counts")
    rounds = parser.parse_args().rounds
    INPUTS.mkdir(parents=True, exist_ok=True)
    use_one_core()
    found = {}
    try:
        for race in races(TRACE, million=False):
            found[race.work] = parts = min(_measured(race, rounds), key=lambda parts: parts.run)
            sys.stdout.write(" | ".join(cells(race.work, parts)) + "\n")
            sys.stdout.flush()
    except InputError as error:
        sys.stderr.write(f"bench: {error}\n")
        sys.exit(2)
    table = markdown_table(HEADER, [cells(work, parts) for work, parts in found.items()])
    page = save("limit", [table], {work: asdict(parts) for work, parts in found.items()})
    sys.stdout.write(f"{page}\n")


def _measured(race: Race, rounds: int) -> Iterator[Parts]:
    """The parts of a race's run, as often as there are rounds."""
    _, _, scenario, *options = race.ours
    command = [sys.executable, "-c", _RUN, scenario, *options[1::2]]
    log = OUT / "limit.log"
    for _ in range(rounds):
        measure(command, log)
        yield Parts(**json.loads(log.read_text(encoding="utf-8")))


def cells(work: str, parts: Parts) -> list[str]:
    """One row of the table."""
    start, read, _, summarise, write = (f"{part_s:.2f}" for part_s in astuple(parts))
    ratio = f"{parts.run / parts.limit:.1f}"
    return [work, f"{parts.run:.2f}", f"{parts.limit:.2f}", ratio, start, read, write, summarise]


if __name__ == "__main__":
    main()

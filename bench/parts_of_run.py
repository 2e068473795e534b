"""Measures the parts of one run; `bench.limit` calls it with a scenario and KEY=VALUE.

Prints the processor time of each part in s, as JSON (`bench.limit.Parts`).
"""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from sim.cli import PROGRAM
from sim.commands.running.simulate import simulate_built, summary_with_confidence
from sim.core.arrays import Int64
from sim.des.servers import RunOptions
from sim.report.summary_text import summary_text
from sim.runlog.buffers import RowBuffer
from sim.runlog.columns import RunLog
from sim.scenario.build import build
from sim.scenario.load import load_scenario

# The columns of requests that hold texts.
_TEXTS = ("rid", "tenant", "status")


def main() -> None:
    path, *overrides = sys.argv[1:]
    PROGRAM.app(["run"])
    times_s = [time.process_time()]
    built = build(load_scenario(Path(path), overrides))
    times_s.append(time.process_time())
    log = simulate_built(built, RunOptions())
    times_s.append(time.process_time())
    summary_text(summary_with_confidence(log, built))
    times_s.append(time.process_time())
    rows = [
        [*zip(*(column.tolist() for column in columns), strict=True)] for columns in _numbers(log)
    ]
    times_s.append(time.process_time())
    write(rows)
    times_s.append(time.process_time())
    start, read, simulated, summarised, listed, written = times_s
    parts = {
        "start": start,
        "read": read - start,
        "simulate": simulated - read,
        "summarise": summarised - simulated,
        "write": written - listed,
    }
    json.dump(parts, sys.stdout)


def _numbers(log: RunLog) -> Iterator[list[Int64]]:
    """The columns of numbers that a log has of requests, and of steps."""
    requests, steps = log.requests, log.steps
    yield [getattr(requests, name) for name in requests.__slots__ if name not in _TEXTS]
    yield [getattr(steps, name) for name in steps.__slots__]


def write(tables: Sequence[Sequence[tuple[int, ...]]]) -> None:
    """Write rows one by one, as a simulation does, and make columns of them."""
    for rows in tables:
        buffer = RowBuffer(len(rows[0]))
        for row in rows:
            buffer.append(row)
        for column in buffer.take_columns():
            column.widened()

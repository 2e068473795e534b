"""The decision log: one JSON line a launched step, then one a request.

Written as the run goes, so a long run needs no memory for it. docs/reference/decision-log.md says
what each key means.
"""

import heapq
import json
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TextIO, cast

from sim.core.atomic import atomic_path, check_target
from sim.engine.decision import decode_crc
from sim.runlog.columns import RunLog
from sim.runlog.json_lines import open_text, to_json_line
from sim.runlog.lines import request_lines, step_lines
from sim.runlog.steps import StepRun


class DecisionLog:
    """Writes the steps of several servers side by side; `close` merges them by start time.

    The file appears under its name only when it is whole; `.gz` names are compressed.
    """

    def __init__(self, path: Path, num_replicas: int) -> None:
        check_target(path)
        self._path = path
        self._open = ExitStack()
        self._parts = [self._open.enter_context(_scratch_file()) for _ in range(num_replicas)]
        self._crc: list[tuple[Sequence[str], int]] = [((), 0)] * num_replicas

    def stepped(self, run: StepRun) -> None:
        """Note a run of steps, one line each."""
        part = self._parts[run.replica]
        for line in step_lines(run, self._decode_crc(run)):
            part.write(to_json_line(line))

    def _decode_crc(self, run: StepRun) -> int:
        rids, crc = self._crc[run.replica]
        if rids is not run.batch.decode_rids:
            rids = run.batch.decode_rids
            crc = decode_crc(run.batch)
            self._crc[run.replica] = (rids, crc)
        return crc

    def close(self, log: RunLog) -> None:
        """Write the file: steps in order of start, then requests in order of submission."""
        for part in self._parts:
            part.seek(0)
        steps: Iterable[str] = self._parts[0]
        if len(self._parts) > 1:
            steps = heapq.merge(*self._parts, key=_order)
        compressed = self._path.suffix == ".gz"
        with atomic_path(self._path) as beside, open_text(beside, compressed=compressed) as file:
            file.writelines(steps)
            file.writelines(to_json_line(line) for line in request_lines(log))
        self.discard()

    def discard(self) -> None:
        """Forget what was noted."""
        self._open.close()


def _scratch_file() -> AbstractContextManager[TextIO]:
    return cast("TextIO", tempfile.TemporaryFile("w+", encoding="utf-8"))


def _order(line: str) -> tuple[int, int]:
    step = json.loads(line)
    return step["t_start_ns"], step["replica"]

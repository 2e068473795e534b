"""Writes decision logs: one JSON line for each launched step, then one for each request.

The lines are written while the simulation runs, so a long run needs no memory for them.
docs/reference/decision-log.md explains each key.
"""

import heapq
import json
import tempfile
import zlib
from codecs import getincrementaldecoder
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TextIO, cast

from sim.core.batch import Rids
from sim.core.files import check_target
from sim.engine.replay.decision import decode_crc
from sim.runlog.builder import StepRun
from sim.runlog.columns import RunLog
from sim.runlog.json_lines import open_text, to_json_line
from sim.runlog.lines import place, request_lines, step_lines
from sim.runlog.servers import FleetLog, LoggedPool

_CHUNK = 1 << 20
# Fast; JSON lines shrink to a tenth even so.
_PACKING_LEVEL = 1


class StepLines:
    """The lines of the steps of each server or rank, in a temporary file for each."""

    def __init__(
        self, num_replicas: int, num_ranks: int = 1, pools: Sequence[LoggedPool] = ()
    ) -> None:
        self._num_ranks = num_ranks
        self._pools = pools
        self._open = ExitStack()
        num_servers = num_replicas * num_ranks
        self._parts = [self._open.enter_context(_scratch_file()) for _ in range(num_servers)]
        self._crc: list[tuple[Rids, int]] = [((), 0)] * num_servers

    def stepped(self, run: StepRun) -> None:
        """Write one line for each step of a run."""
        part = self._parts[run.replica]
        where = place(run.replica, self._num_ranks, self._pools)
        for line in step_lines(run, self._decode_crc(run), where):
            part.write(to_json_line(line))

    def _decode_crc(self, run: StepRun) -> int:
        rids, crc = self._crc[run.replica]
        if rids is not run.batch.decode_rids:
            rids = run.batch.decode_rids
            crc = decode_crc(run.batch)
            self._crc[run.replica] = (rids, crc)
        return crc

    def packed(self, server: int) -> list[bytes]:
        """The lines of a server, compressed, to be sent to another process."""
        packer, part = zlib.compressobj(_PACKING_LEVEL), self._parts[server]
        part.seek(0)
        packed = [packer.compress(text.encode()) for text in iter(lambda: part.read(_CHUNK), "")]
        return [*filter(None, packed), packer.flush()]

    def add(self, server: int, packed: Iterable[bytes]) -> None:
        """Take the lines of a server from another process."""
        unpacker, decoder = zlib.decompressobj(), getincrementaldecoder("utf-8")()
        for piece in packed:
            self._parts[server].write(decoder.decode(unpacker.decompress(piece)))

    def in_order(self) -> Iterable[str]:
        """The lines of all servers in order of start."""
        for part in self._parts:
            part.seek(0)
        if len(self._parts) == 1:
            return self._parts[0]
        return heapq.merge(*self._parts, key=_order)

    def discard(self) -> None:
        """Delete the temporary files."""
        self._open.close()


class DecisionLog:
    """Writes a decision log when the run has ended.

    The log gets its name only when it is complete. It is compressed if the name ends in `.gz`.

    Attributes:
        steps: takes the steps while the run goes on.
    """

    def __init__(
        self,
        path: Path,
        num_replicas: int,
        num_ranks: int = 1,
        pools: Sequence[LoggedPool] = (),
    ) -> None:
        check_target(path)
        self._path = path
        self.steps = StepLines(num_replicas, num_ranks, pools)

    def close(self, log: RunLog) -> None:
        """Write the log: steps in order of start, then requests in order of submission.

        If the number of replicas changes, its changes come between the two.
        """
        with open_text(self._path) as file:
            file.writelines(self.steps.in_order())
            if (fleet := FleetLog.of(log.meta)) is not None:
                file.writelines(map(to_json_line, fleet.lines()))
            file.writelines(to_json_line(line) for line in request_lines(log))
        self.discard()

    def discard(self) -> None:
        """Delete the temporary files."""
        self.steps.discard()


def _scratch_file() -> AbstractContextManager[TextIO]:
    return cast("TextIO", tempfile.TemporaryFile("w+", encoding="utf-8"))


def _order(line: str) -> tuple[int, int, int]:
    step = json.loads(line)
    return step["t_start_ns"], step["replica"], step.get("rank", 0)

"""The decision log: one JSON line a launched step, then one a request.

Written as the run goes, so a long run needs no memory for it. Meanings of the keys are those of
SGLang's side of the comparison (docs/decision-log.md).
"""

import gzip
import heapq
import io
import json
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TextIO, cast

from sim.core.atomic import atomic_path, check_target
from sim.core.batch import ForwardMode
from sim.runlog.columns import RunLog
from sim.runlog.steps import StepRun

_MODES = {ForwardMode.EXTEND: "extend", ForwardMode.DECODE: "decode", ForwardMode.MIXED: "mixed"}


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
            part.write(json.dumps(line, separators=(",", ":")) + "\n")

    def _decode_crc(self, run: StepRun) -> int:
        rids, crc = self._crc[run.replica]
        if rids is not run.batch.decode_rids:
            rids = run.batch.decode_rids
            crc = zlib.crc32(",".join(rids).encode())
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
        with atomic_path(self._path) as beside, _open_text(beside, compressed=compressed) as file:
            file.writelines(steps)
            file.writelines(
                json.dumps(line, separators=(",", ":")) + "\n" for line in request_lines(log)
            )
        self.discard()

    def discard(self) -> None:
        """Forget what was noted."""
        self._open.close()


def _scratch_file() -> AbstractContextManager[TextIO]:
    return cast("TextIO", tempfile.TemporaryFile("w+", encoding="utf-8"))


def _order(line: str) -> tuple[int, int]:
    step = json.loads(line)
    return step["t_start_ns"], step["replica"]


@contextmanager
def _open_text(path: Path, *, compressed: bool) -> Iterator[TextIO]:
    with ExitStack() as stack:
        file = stack.enter_context(path.open("wb"))
        if compressed:
            # No name and no time inside: the same log gives the same bytes.
            packed = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
            file = cast("io.BufferedWriter", stack.enter_context(packed))
        yield stack.enter_context(io.TextIOWrapper(file, encoding="utf-8", newline="\n"))


def step_lines(run: StepRun, decode_crc: int) -> Iterator[dict[str, object]]:
    """One mapping a step of the run."""
    batch, state = run.batch, run.state
    num_decode = len(batch.decode_rids)
    free_tokens, ratios = [state.free_tokens], [state.ratio]
    if run.further is not None:
        free_tokens += run.further.free_tokens.tolist()
        ratios += run.further.ratio
    columns = (run.starts_ns.tolist(), run.ends_ns.tolist(), run.host_ns.tolist())
    rows = zip(*columns, free_tokens, ratios, strict=True)
    for i, (start_ns, end_ns, host_ns, free, ratio) in enumerate(rows):
        now = run.further_state if i else state
        yield {
            "kind": "step",
            "replica": run.replica,
            "step": run.first_step + i,
            "t_start_ns": start_ns,
            "t_end_ns": end_ns,
            "host_ns": host_ns,
            "mode": _MODES[batch.mode],
            "prefill": [[row.rid, row.prefix_len, row.extend_len] for row in batch.prefill],
            "n_decode": num_decode,
            "decode_crc": decode_crc,
            "ctx": batch.num_context_tokens + i * num_decode,
            "free": free,
            "evictable": now.evictable_tokens,
            "used": now.free_tokens + now.used_tokens - free,
            "retracted": [] if i else list(state.retracted),
            "preempted": [] if i else [[by, list(victims)] for by, victims in state.preempted],
            "aborted": [] if i else list(state.aborted),
            "queue": now.queue,
            "running": now.running,
            "full": now.full,
            "ratio": ratio,
            "chunked": now.chunked,
        }


def request_lines(log: RunLog) -> Iterator[dict[str, object]]:
    """One mapping a request; times that never came are null."""
    requests = log.requests
    for i, rid in enumerate(requests.rid):
        arrival_ns = int(requests.arrival_ns[i])
        first_token_ns, finish_ns = int(requests.first_token_ns[i]), int(requests.finish_ns[i])
        yield {
            "kind": "req",
            "rid": rid,
            "replica": int(requests.replica[i]),
            "arrival_ns": arrival_ns,
            "ttft_ns": first_token_ns - arrival_ns if first_token_ns >= 0 else None,
            "finish_ns": finish_ns if finish_ns >= 0 else None,
            "cached_at_admit": int(requests.cached_tokens[i]),
            "retractions": int(requests.retractions[i]),
            "preemptions": int(requests.preemptions[i]),
            "status": requests.status[i],
        }

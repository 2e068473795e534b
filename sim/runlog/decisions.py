"""Decision logs: one JSON line for each launched step, then one for each request.

Run logs of real runs have the same lines, made here, too. docs/reference/decision-log.md explains
the keys, and docs/reference/run-log.md the further keys of real runs. The lines of a simulation are
written while it runs, so a long run needs no memory for them.
"""

import heapq
import json
import tempfile
import zlib
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any, TextIO, cast

from sim.core.batch import Rids
from sim.core.files import check_target
from sim.core.packed import Line, open_text, to_json_line
from sim.engine.logged_decision import decode_crc, describe_decision
from sim.runlog.builder import StepRun
from sim.runlog.columns import RunLog
from sim.runlog.servers import FleetLog, LoggedPool

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_FIRST_SERVER: Mapping[str, int] = MappingProxyType({"replica": 0})


def step_times(
    decided_ns: int, start_ns: int, end_ns: int, host_ns: int, launch_ns: int = 0
) -> dict[str, int]:
    """When a step was decided, when the device started and ended it, host time and launch time."""
    times = {"t_decided_ns": decided_ns, "t_start_ns": start_ns, "t_end_ns": end_ns}
    return times | {"host_ns": host_ns} | ({"launch_ns": launch_ns} if launch_ns else {})


def step_line(
    number: int,
    times: Mapping[str, int],
    decided: Mapping[str, Any],
    *,
    place: Mapping[str, int | str] = _FIRST_SERVER,
    measured: Mapping[str, Any] = _NOTHING,
) -> Line:
    """The line of one step, the first of its server being 0.

    `times` is the result of `step_times`, `decided` that of `describe_decision`, and `place` that
    of `place_keys`; `measured` has further keys of a real run.
    """
    return {"kind": "step", **place, "step": number, **times, **measured, **decided}


def place_keys(
    number: int, num_ranks: int, pools: Sequence[LoggedPool] = ()
) -> Mapping[str, int | str]:
    """The keys of a line that say which server it is of, or rank of a replica with several.

    `number` is a value of column `replica` of the run log.
    """
    for pool in pools:
        if pool.has(number):
            return {"replica": number, "pool": pool.name, "role": pool.role}
    replica, rank = divmod(number, num_ranks)
    return {"replica": replica} if num_ranks == 1 else {"replica": replica, "rank": rank}


def step_lines(
    run: StepRun, crc: int, where: Mapping[str, int | str] = _FIRST_SERVER
) -> Iterator[Line]:
    """One line for each step of a run; `crc` is the `decode_crc` of its batch."""
    decided = describe_decision(run.batch, run.state, crc)
    times = step_times(run.decided_ns, run.start_ns, run.first_end_ns, run.host_ns, run.launch_ns)
    yield step_line(run.first_step, times, decided, place=where)
    further = run.further
    if further is None:
        return
    decided = describe_decision(run.batch, further.state, crc)
    decided |= {"retracted": [], "preempted": [], "aborted": []}
    passed, evictable = further.run, further.state.evictable_tokens
    total = further.state.free_tokens + further.state.used_tokens + evictable
    columns = (further.decided_ns, further.starts_ns, further.ends_ns, further.host_ns)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    contexts = passed.contexts_after(decided["ctx"], decided["n_decode"])
    kv = zip(passed.free_tokens().tolist(), passed.evictions(), strict=True)
    after = zip(rows, contexts, kv, passed.ratio, strict=True)
    for number, (times_ns, ctx, (free, evicted), ratio) in enumerate(after, run.first_step + 1):
        decided_ns, start_ns, end_ns, host_ns = times_ns
        decided |= {"ctx": ctx, "free": free, "evictable": evictable - evicted, "ratio": ratio}
        decided["used"] = total - free - (evictable - evicted)
        times = step_times(decided_ns, start_ns, end_ns, host_ns, further.launch_ns)
        yield step_line(number, times, decided, place=where)


def request_line(
    rid: str,
    times_ns: tuple[int, int, int],
    counts: Mapping[str, int],
    *,
    status: str,
    warm_up: bool,
    place: Mapping[str, int | str] = _FIRST_SERVER,
    measured: Mapping[str, Any] = _NOTHING,
) -> Line:
    """The line of one request.

    `times_ns` are when it arrived, got its first token, and finished; a negative time means that
    the event never happened. `counts` are of tokens and steps, by key; `status` is a value of
    `core.request.Status`; `place` has the keys that tell its server (see `place_keys`); `measured`
    has further keys, such as those of a real run.
    """
    arrival_ns, first_token_ns, finish_ns = times_ns
    return {
        "kind": "req",
        "rid": rid,
        **place,
        "arrival_ns": arrival_ns,
        "ttft_ns": first_token_ns - arrival_ns if first_token_ns >= 0 else None,
        "finish_ns": time_or_null(finish_ns),
        **counts,
        "status": status,
        **({"warm_up": True} if warm_up else {}),
        **measured,
    }


def time_or_null(time_ns: int) -> int | None:
    """The time, or None (JSON null) if the event never happened."""
    return time_ns if time_ns >= 0 else None


def request_lines(log: RunLog) -> Iterator[Line]:
    """One line for each request of a simulated run, in order of submission."""
    requests, pools = log.requests, log.pools
    times = (requests.arrival_ns, requests.first_token_ns, requests.finish_ns)
    counted = {"cached_at_admit": requests.cached_tokens}
    if log.has_host_tier:
        counted["host_cached_at_admit"] = requests.host_cached_tokens
    if log.has_drafts:
        counted["verify_steps"] = requests.verify_steps
        counted |= {"drafted": requests.drafted_tokens, "accepted": requests.accepted_tokens}
    counted |= {"retractions": requests.retractions, "preemptions": requests.preemptions}
    for i, rid in enumerate(requests.rid):
        arrival_ns, first_token_ns, finish_ns = (int(column[i]) for column in times)
        yield request_line(
            rid,
            (arrival_ns, first_token_ns, finish_ns),
            {key: int(column[i]) for key, column in counted.items()},
            status=requests.status[i],
            warm_up=bool(requests.warm_up[i]),
            place=place_keys(int(requests.replica[i]), log.num_ranks, pools),
            measured=_handover_of(log, i),
        )


def _handover_of(log: RunLog, i: int) -> Line:
    """How a request got from its prefill server to its decode server."""
    handovers = log.handovers
    if handovers is None:
        return {}
    return {
        "prefill_replica": time_or_null(int(handovers.prefill_replica[i])),
        "scheduled_ns": time_or_null(int(log.requests.scheduled_ns[i])),
        "allocated_ns": time_or_null(int(handovers.allocated_ns[i])),
        "computed_ns": time_or_null(int(handovers.computed_ns[i])),
        "received_ns": time_or_null(int(handovers.received_ns[i])),
        "sent_tokens": int(handovers.sent_tokens[i]),
    }


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
        where = place_keys(run.replica, self._num_ranks, self._pools)
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
        """The lines of all servers, in order of the steps' starts."""
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
